// Device arrays for kernel tests. Known numbers before and after them detect writes outside the
// array, on a GPU and on the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "llmc/device/device.h"
#include "test/support.h"

namespace llmc_test {

template <class T>
class Guarded {
 public:
  // Copies `values` to the device, between two guards.
  Guarded(const std::vector<T>& values, llmc::Stream& stream)
      : size_(static_cast<std::int64_t>(values.size())), stream_(&stream) {
    std::vector<T> all(values.size() + 2 * kGuard, guard());
    std::copy(values.begin(), values.end(), all.begin() + kGuard);
    buffer_ = upload(all, stream);
  }

  T* data() const { return buffer_.data() + kGuard; }
  std::int64_t size() const { return size_; }
  std::vector<T> values() const {
    const std::vector<T> all = download(buffer_, *stream_);
    return std::vector<T>(all.begin() + kGuard, all.end() - kGuard);
  }
  bool intact() const {
    const std::vector<T> all = download(buffer_, *stream_);
    const T expected = guard();
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (std::memcmp(&all[i], &expected, sizeof(T)) != 0) return false;
      if (std::memcmp(&all[all.size() - 1 - i], &expected, sizeof(T)) != 0) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;  // keeps the array aligned to 16 bytes
  static T guard() {
    T value;
    std::memset(static_cast<void*>(&value), 0x5a, sizeof value);
    return value;
  }

  std::int64_t size_;
  llmc::Stream* stream_;
  llmc::Buffer<T> buffer_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// The numbers that a kernel reads, and the same numbers for the oracle. They are rounded to T
// first, so that only the kernel's own error is measured.
template <class T>
struct Data {
  std::vector<T> stored;
  std::vector<double> exact;

  explicit Data(const std::vector<float>& values) : stored(convert<T>(values)) {
    for (const T& x : stored) exact.push_back(as_double(x));
  }
  Data(std::int64_t n, std::uint64_t seed, double scale = 1.0)
      : Data(random_floats(n, seed, scale)) {}
};

// Relative L2 error allowed for a result stored as T whose arithmetic was fp32. Rounding to half
// precision costs about 0.4 kSpacing of a tensor's norm (dev/harness/report.h); the rest is for the
// arithmetic before it.
template <class T>
inline constexpr double kTolerance = sizeof(T) < 4 ? kSpacing<T> : 1e-6;

}  // namespace llmc_test
