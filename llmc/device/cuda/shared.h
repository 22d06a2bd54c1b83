// Shared memory of the GPU: pieces of the block's dynamic shared memory.
#pragma once

#include <cstdint>

#include "llmc/device/shared_layout.h"

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
