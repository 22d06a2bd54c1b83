// cp.async: copies 16 bytes from global to shared memory, bypassing the registers and the L1 cache.
#pragma once

#include <cuda_runtime.h>

namespace llmc {

__device__ __forceinline__ void copy_async_16(void* shared_destination, const void* source,
                                              bool valid = true) {
  const unsigned destination = static_cast<unsigned>(__cvta_generic_to_shared(shared_destination));
  const int bytes = valid ? 16 : 0;  // bytes to read; zeros fill the rest of the 16 bytes
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace llmc
