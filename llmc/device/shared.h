// A block's shared memory. A kernel carves pieces off it in the same order in every thread; its
// launcher adds the same pieces up in a SharedLayout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/device/target.h"

namespace llmc {

inline constexpr std::size_t kSharedAlignment = 128;
// What a block may take on every GPU from sm_80 to sm_120 (sm_86, 89 and 120 have no more).
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

#ifdef __CUDACC__
namespace llmc {
class SharedMemory {
 public:
  template <class T>
  __device__ __forceinline__ T* take(std::int64_t count) {
    extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
    T* piece = reinterpret_cast<T*>(dynamic_shared_memory + offset_);
    offset_ += (static_cast<unsigned>(count) * sizeof(T) + kSharedAlignment - 1) /
               kSharedAlignment * kSharedAlignment;
    return piece;
  }

 private:
  unsigned offset_ = 0;
};
}  // namespace llmc
#else
#include "llmc/device/host/shared.h"
#endif
