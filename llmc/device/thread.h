// Position of a kernel's thread in its warp, its block and the grid. Blocks are one-dimensional.
#pragma once

#include <cstdint>

#include "llmc/device/block_threads.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
namespace llmc {
__device__ __forceinline__ int thread_index() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int block_size() {
  return static_cast<int>(blockDim.x);
}
__device__ __forceinline__ std::int64_t block_x() {
  return blockIdx.x;
}
__device__ __forceinline__ std::int64_t block_y() {
  return blockIdx.y;
}
__device__ __forceinline__ std::int64_t block_z() {
  return blockIdx.z;
}
__device__ __forceinline__ std::int64_t grid_x() {
  return gridDim.x;
}
__device__ __forceinline__ std::int64_t grid_y() {
  return gridDim.y;
}
__device__ __forceinline__ std::int64_t grid_z() {
  return gridDim.z;
}
}  // namespace llmc
#else
#include "llmc/device/host/thread.h"
#endif

namespace llmc {

// Unsigned: dividing a number that might be negative needs extra instructions and registers.
inline constexpr unsigned kWarp = 32;

__device__ __forceinline__ int lane() {
  return thread_index() % kWarp;
}
__device__ __forceinline__ int warp_index() {
  return thread_index() / kWarp;
}
__device__ __forceinline__ int warps_per_block() {
  if (kOneThreadBlocks && block_size() == 1) return 1;
  return block_size() / kWarp;
}
__device__ __forceinline__ std::int64_t global_thread() {
  return block_x() * block_size() + thread_index();
}

}  // namespace llmc
