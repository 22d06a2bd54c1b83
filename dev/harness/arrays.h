// Device arrays of op cases and of kernel tests. Each array can have several copies (sets), so that
// a timed run reads its data from memory and not from the L2 cache. Guard bands around each copy
// must stay unchanged: they detect writes outside an array, on a GPU and on the host. Arrays of
// cases are filled on the device from a seed, so that any of them can be restored and any part
// compared with the oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc_dev {

using llmc::Buffer;
using llmc::Stream;

// Contents of an array before a run. The case itself writes `computed` values.
struct Fill {
  enum class Kind { normal, positive, index, unwritten, computed };
  Kind kind = Kind::unwritten;
  std::uint32_t seed = 0;
  float deviation = 1, mean = 0;
  std::int32_t limit = 0;  // indices are 0 .. limit - 1
};
inline Fill normal(std::uint32_t seed, float deviation = 1, float mean = 0) {
  return {Fill::Kind::normal, seed, deviation, mean, 0};
}
inline Fill positive(std::uint32_t seed, float deviation = 1) {
  return {Fill::Kind::positive, seed, deviation, 0, 0};
}
inline Fill indices(std::uint32_t seed, std::int64_t limit) {
  return {Fill::Kind::index, seed, 1, 0, static_cast<std::int32_t>(limit)};
}
inline constexpr Fill kUnwritten{Fill::Kind::unwritten, 0, 1, 0, 0};  // NaN
inline constexpr Fill kComputed{Fill::Kind::computed, 0, 1, 0, 0};

template <class T>
__device__ __forceinline__ T filled(const Fill& fill, float normal, std::uint32_t bits) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits % static_cast<std::uint32_t>(fill.limit));
  } else {
    const float value = fill.mean + fill.deviation * normal;
    if (fill.kind == Fill::Kind::unwritten) {
      return llmc::from_float<T>(llmc::float_from_bits(0x7fc00000u));
    }
    return llmc::from_float<T>(fill.kind == Fill::Kind::positive ? std::fabs(value) : value);
  }
}

// Each thread writes four numbers, as many as one Philox draw yields.
template <class T>
__global__ void fill_kernel(T* p, std::int64_t n, Fill fill) {
  const std::int64_t group = llmc::global_thread();
  if (group * 4 >= n) return;
  const llmc::PhiloxBits bits = llmc::random_bits(fill.seed, llmc::RandomPurpose::sampling, 0, 0,
                                                  static_cast<std::uint64_t>(group));
  float normals[4];
  llmc::normals_from_bits(bits.words[0], bits.words[1], normals[0], normals[1]);
  llmc::normals_from_bits(bits.words[2], bits.words[3], normals[2], normals[3]);
  for (int k = 0; k < 4; ++k) {
    if (group * 4 + k < n) p[group * 4 + k] = filled<T>(fill, normals[k], bits.words[k]);
  }
}

// Summary of an array: two runs are compared by it, without copying their results to the host.
struct Digest {
  std::uint64_t hash = 0;
  std::uint64_t not_finite = 0;
  bool operator==(const Digest&) const = default;
};

inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325u;  // FNV-1a (Fowler, Noll, Vo)
inline constexpr std::uint64_t kHashPrime = 0x100000001b3u;

// Thread i hashes elements i, i + threads, ...
template <class T>
__global__ void digest_kernel(Digest* pieces, const T* p, std::int64_t n, std::int64_t threads) {
  const std::int64_t thread = llmc::global_thread();
  if (thread >= threads) return;
  Digest digest{kHashStart, 0};
  for (std::int64_t i = thread; i < n; i += threads) {
    const T value = p[i];
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    digest.hash = (digest.hash ^ bits) * kHashPrime;
    if constexpr (!std::is_integral_v<T>) {
      if (!std::isfinite(llmc::to_float(value))) ++digest.not_finite;
    }
  }
  pieces[thread] = digest;
}

template <class T>
Digest digest_of(const T* p, std::int64_t n, Stream& stream) {
  const std::int64_t threads = std::clamp<std::int64_t>(n / 16, 1, 1 << 17);
  const Buffer<Digest> pieces(threads);
  llmc::launch_elementwise<1>(digest_kernel<T>, threads, stream, pieces.data(), p, n, threads);
  std::vector<Digest> all(static_cast<std::size_t>(threads));
  llmc::copy_to_host(all.data(), pieces.data(), threads, stream);
  stream.synchronize();
  Digest digest{kHashStart, 0};
  for (const Digest& piece : all) {
    digest.hash = (digest.hash ^ piece.hash) * kHashPrime;
    digest.not_finite += piece.not_finite;
  }
  return digest;
}

// to (rows, count) = columns `which` of from (rows, C); one number per thread.
template <class T>
__global__ void gather_columns_kernel(T* to, const T* from, std::int64_t rows, std::int64_t C,
                                      const std::int64_t* which, std::int64_t count) {
  const std::int64_t i = llmc::global_thread();
  if (i < rows * count) to[i] = from[i / count * C + which[i % count]];
}

enum class Role { input, output };  // output: written or changed by the op

// The operations of a case on an array of any element type.
class AnyArray {
 public:
  virtual ~AnyArray() = default;
  virtual void reset(int set) = 0;
  virtual void restore_guards(int set) = 0;
  virtual bool guards_intact(int set) const = 0;
  virtual Digest digest(int set) const = 0;
  virtual Role role() const = 0;
};

template <class T>
class DeviceArray : public AnyArray {
 public:
  DeviceArray(std::int64_t n, int sets, Role role, Fill fill, Stream& stream)
      : n_(n),
        pitch_(llmc::round_up(n, kGuard) + kGuard),
        sets_(sets),
        role_(role),
        fill_(fill),
        stream_(&stream),
        memory_(sets * pitch_ + kGuard) {
    for (int set = 0; set < sets; ++set) {
      reset(set);
      restore_guards(set);
    }
  }

  // One copy with these values.
  DeviceArray(const std::vector<T>& values, Stream& stream)
      : DeviceArray(static_cast<std::int64_t>(values.size()), 1, Role::input, kComputed, stream) {
    llmc::copy_to_device(data(), values.data(), n_, stream);
    stream.synchronize();
  }

  T* data() const { return at(0); }
  T* at(int set) const { return memory_.data() + kGuard + set * pitch_; }
  std::int64_t size() const { return n_; }
  int sets() const { return sets_; }
  Role role() const override { return role_; }

  void reset(int set) override {
    if (fill_.kind == Fill::Kind::computed) return;
    llmc::launch_elementwise<1>(fill_kernel<T>, llmc::ceil_div(n_, 4), *stream_, at(set), n_,
                                fill_);
    if (first_values_.empty()) return;
    llmc::copy_to_device(at(set), first_values_.data(),
                         static_cast<std::int64_t>(first_values_.size()), *stream_);
    stream_->synchronize();
  }

  // Numbers with which the array begins instead of its fill, such as inputs at which a formula may
  // fail. As many as fit are used.
  void begin_with(const std::vector<float>& values) {
    const auto count = std::min<std::size_t>(values.size(), static_cast<std::size_t>(n_));
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        first_values_.push_back(static_cast<T>(values[i]));
      } else {
        first_values_.push_back(llmc::from_float<T>(values[i]));
      }
    }
    for (int set = 0; set < sets_; ++set) reset(set);
  }

  void restore_guards(int set) override {
    const std::vector<T> guard(kGuard, guard_value());
    for (T* place : {at(set) - kGuard, at(set) + n_}) {
      llmc::copy_to_device(place, guard.data(), kGuard, *stream_);
    }
    stream_->synchronize();  // `guard` is freed on return
  }

  bool guards_intact() const { return guards_intact(0); }
  bool guards_intact(int set) const override {
    const T expected = guard_value();
    std::vector<T> stored(kGuard);
    for (const T* place : {at(set) - kGuard, at(set) + n_}) {
      llmc::copy_to_host(stored.data(), place, kGuard, *stream_);
      stream_->synchronize();
      for (const T& value : stored) {
        if (std::memcmp(&value, &expected, sizeof(T)) != 0) return false;
      }
    }
    return true;
  }

  Digest digest(int set) const override { return digest_of<T>(at(set), n_, *stream_); }

  // Elements first .. first + count - 1 of the first set.
  std::vector<T> stored(std::int64_t first, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    llmc::copy_to_host(values.data(), static_cast<const T*>(at(0)) + first, count, *stream_);
    stream_->synchronize();
    return values;
  }
  std::vector<T> stored() const { return stored(0, n_); }

  // The same elements, converted to double exactly.
  std::vector<double> values(std::int64_t first, std::int64_t count) const {
    return as_doubles(stored(first, count));
  }
  std::vector<double> values() const { return values(0, n_); }

  // Rows `which` of the array as a matrix with C columns.
  std::vector<double> rows(const std::vector<std::int64_t>& which, std::int64_t C) const {
    std::vector<double> all;
    for (const std::int64_t row : which) {
      const std::vector<double> one = values(row * C, C);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // Columns `which` of the same matrix: (n / C, which.size()).
  std::vector<double> columns(const std::vector<std::int64_t>& which, std::int64_t C) const {
    const std::int64_t rows = n_ / C, count = static_cast<std::int64_t>(which.size());
    const Buffer<std::int64_t> indices(count);
    const Buffer<T> gathered(rows * count);
    llmc::copy_to_device(indices.data(), which.data(), count, *stream_);
    llmc::launch_elementwise<1>(gather_columns_kernel<T>, rows * count, *stream_, gathered.data(),
                                static_cast<const T*>(at(0)), rows, C,
                                static_cast<const std::int64_t*>(indices.data()), count);
    std::vector<T> stored(static_cast<std::size_t>(rows * count));
    llmc::copy_to_host(stored.data(), static_cast<const T*>(gathered.data()), rows * count,
                       *stream_);
    stream_->synchronize();
    return as_doubles(stored);
  }

 private:
  // Converts exactly.
  static std::vector<double> as_doubles(const std::vector<T>& stored) {
    std::vector<double> all;
    all.reserve(stored.size());
    for (const T& x : stored) all.push_back(static_cast<double>(llmc::to_float(x)));
    return all;
  }

  // Guard size in elements. Every set starts at a multiple of it, so at a multiple of 256 bytes at
  // least.
  static constexpr std::int64_t kGuard = 256;
  static T guard_value() {
    T value;
    std::memset(static_cast<void*>(&value), 0x5a, sizeof value);
    return value;
  }

  std::int64_t n_, pitch_;
  int sets_;
  Role role_;
  Fill fill_;
  Stream* stream_;
  Buffer<T> memory_;
  std::vector<T> first_values_;
};

// The rows to compare: all rows of a small matrix; the first, the last and some between of a large
// one. They are the same for every variant.
inline std::vector<std::int64_t> sample(std::int64_t rows, std::int64_t most) {
  std::vector<std::int64_t> which;
  if (rows <= most) {
    for (std::int64_t r = 0; r < rows; ++r) which.push_back(r);
    return which;
  }
  for (std::int64_t i = 0; i + 1 < most; ++i) {
    // Evenly spaced, plus a small offset so that the rows do not align with tiles.
    which.push_back(std::min(rows - 1, i * (rows / (most - 1)) + (i * i) % 7));
  }
  which.push_back(rows - 1);
  return which;
}

}  // namespace llmc_dev
