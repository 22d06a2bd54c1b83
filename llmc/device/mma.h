// Tensor-core matrix instructions of a warp (sm_80 and later); README.md has the fragment layouts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/dtype.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/mma.h"
#else
#include "llmc/device/host/mma.h"
#endif

namespace llmc {

// Two floats rounded to T in one register, `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack2(float low, float high) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, bf16>) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  if constexpr (std::is_same_v<T, fp16>) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
#endif
  return static_cast<std::uint32_t>(from_float<T>(low).bits) |
         static_cast<std::uint32_t>(from_float<T>(high).bits) << 16;
}

}  // namespace llmc
