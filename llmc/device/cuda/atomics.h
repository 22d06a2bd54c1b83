// Integer atomics of the GPU.
#pragma once

#include <cstdint>

namespace llmc {

// Adds 1 to *counter and returns its old value. What the calling thread wrote before is visible to
// a thread that reads a later value through this function.
__device__ __forceinline__ std::int32_t count_arrival(std::int32_t* counter) {
  __threadfence();
  const std::int32_t old = atomicAdd(counter, 1);
  __threadfence();
  return old;
}

}  // namespace llmc
