// Shared memory that a launch requests: the sum of the pieces that its kernel takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmc {

inline constexpr std::size_t kSharedAlignment = 128;
// Shared memory available to a block on every GPU from sm_80 to sm_120; the limit of sm_86, sm_89
// and sm_120.
inline constexpr std::size_t kMaxSharedBytes = 99 * 1024;

class SharedLayout {
 public:
  template <class T>
  constexpr SharedLayout add(std::int64_t count) const {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    return SharedLayout(bytes_ +
                        (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment);
  }
  constexpr std::size_t bytes() const { return bytes_; }
  constexpr SharedLayout() = default;

 private:
  constexpr explicit SharedLayout(std::size_t bytes) : bytes_(bytes) {}
  std::size_t bytes_ = 0;
};

}  // namespace llmc
