// Device and pinned memory, copies and fills through the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "llmc/device/cuda/stream.h"

namespace llmc::backend {

inline constexpr std::int64_t kTensorGap = 0;
inline void note_tensor(const void*, std::size_t) {}

inline void* allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error: the caller reports it, later calls must not
    return nullptr;
  }
  check_cuda(status, "cudaMalloc");
  return memory;
}
inline void free_device(void* memory, std::size_t) {
  cudaFree(memory);
}

inline void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  return memory;
}
inline void free_pinned(void* memory, std::size_t) {
  cudaFreeHost(memory);
}

inline void copy_to_device(void* d, const void* s, std::size_t n, Stream& stream) {
  check_cuda(cudaMemcpyAsync(d, s, n, cudaMemcpyHostToDevice, stream.handle()), "cudaMemcpyAsync");
}
inline void copy_to_host(void* d, const void* s, std::size_t n, Stream& stream) {
  check_cuda(cudaMemcpyAsync(d, s, n, cudaMemcpyDeviceToHost, stream.handle()), "cudaMemcpyAsync");
}
inline void copy_on_device(void* d, const void* s, std::size_t n, Stream& stream) {
  check_cuda(cudaMemcpyAsync(d, s, n, cudaMemcpyDeviceToDevice, stream.handle()),
             "cudaMemcpyAsync");
}
inline void fill_zero(void* p, std::size_t n, Stream& stream) {
  check_cuda(cudaMemsetAsync(p, 0, n, stream.handle()), "cudaMemsetAsync");
}

}  // namespace llmc::backend
