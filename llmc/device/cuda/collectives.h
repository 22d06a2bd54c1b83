// Warp and block collectives of the GPU.
#pragma once

#include "llmc/device/thread.h"

namespace llmc {

inline constexpr int kBlockScratch = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ __forceinline__ T shuffle(T value, int source_lane) {
  return __shfl_sync(kAllLanes, value, source_lane);
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}

namespace cuda {
template <int Width>
__device__ __forceinline__ float butterfly_sum(float x) {
#pragma unroll
  for (int mask = Width / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
template <int Width>
__device__ __forceinline__ float butterfly_max(float x) {
#pragma unroll
  for (int mask = Width / 2; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
  return x;
}
}  // namespace cuda

__device__ __forceinline__ float warp_sum(float x) {
  return cuda::butterfly_sum<32>(x);
}
__device__ __forceinline__ float warp_max(float x) {
  return cuda::butterfly_max<32>(x);
}
__device__ __forceinline__ float quad_sum(float x) {
  return cuda::butterfly_sum<4>(x);
}
__device__ __forceinline__ float quad_max(float x) {
  return cuda::butterfly_max<4>(x);
}

__device__ __forceinline__ bool warp_any(bool condition) {
  return __any_sync(kAllLanes, condition) != 0;
}
__device__ __forceinline__ void warp_barrier() {
  __syncwarp();
}
__device__ __forceinline__ void block_barrier() {
  __syncthreads();
}
__device__ __forceinline__ bool block_any(bool condition) {
  return __syncthreads_or(condition) != 0;
}

// Reduces each warp, then the warps' results; every warp repeats the second reduction.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (lane() == 0) scratch[warp_index()] = x;
  __syncthreads();
  x = warp_sum(lane() < warps_per_block() ? scratch[lane()] : 0.0f);
  __syncthreads();  // the caller may reuse `scratch` immediately
  return x;
}

__device__ __forceinline__ float block_max(float x, float* scratch) {
  x = warp_max(x);
  if (lane() == 0) scratch[warp_index()] = x;
  __syncthreads();
  x = warp_max(lane() < warps_per_block() ? scratch[lane()] : -__int_as_float(0x7f800000));
  __syncthreads();
  return x;
}

}  // namespace llmc
