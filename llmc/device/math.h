// Small arithmetic that kernels and launchers share.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/host/exponential.h"
#include "llmc/device/target.h"

namespace llmc {

inline constexpr float kLog2E = 1.44269504088896340736f;  // log2(e)
inline constexpr float kLn2 = 0.69314718055994530942f;    // ln(2)

template <class A, class B>
__host__ __device__ constexpr std::int64_t ceil_div(A a, B b) {
  return (static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b) - 1) /
         static_cast<std::int64_t>(b);
}

template <class A, class B>
__host__ __device__ constexpr std::int64_t round_up(A a, B b) {
  return ceil_div(a, b) * static_cast<std::int64_t>(b);
}

// e^x and 2^x, accurate to about one unit in the last place, for fp32. F is float or, on the host,
// a SIMD register; those of vectors (floats.h) are faster than those of single numbers there.
template <class F>
__host__ __device__ __forceinline__ F accurate_exp(F x) {
#ifdef __CUDA_ARCH__
  return std::exp(x);
#else
  return host::exp(x);
#endif
}

template <class F>
__host__ __device__ __forceinline__ F accurate_exp2(F x) {
#ifdef __CUDA_ARCH__
  return std::exp2(x);
#else
  return host::exp2(x);
#endif
}

// 2^x for half-precision paths; fp32 paths use accurate_exp2. The relative error is about 2^-22; on
// a GPU this is the hardware's approximation, and results below the normal range become 0.
template <class F>
__device__ __forceinline__ F fast_exp2(F x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return host::fast_exp2(x);
#endif
}

}  // namespace llmc
