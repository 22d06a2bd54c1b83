// The larger and the smaller of two floats, or of each two elements of SIMD registers. Instructions
// of x86 are named, because compilers make a comparison and a choice of the expressions below.
#pragma once

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "llmc/device/target.h"

namespace llmc::host {

// x > y ? x : y. F is float or a vector type of the compiler. If one of the two is NaN, or both are
// zeros, the result is y.
template <class F>
__forceinline__ F larger(F x, F y) {
#if defined(__AVX512F__)
  // With a mask, because GCC 12 warns about the form without.
  if constexpr (sizeof(F) == 64) {
    return std::bit_cast<F>(
        _mm512_maskz_max_ps(0xffff, std::bit_cast<__m512>(x), std::bit_cast<__m512>(y)));
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(F) == 32)
    return std::bit_cast<F>(_mm256_max_ps(std::bit_cast<__m256>(x), std::bit_cast<__m256>(y)));
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(F) == 16)
    return std::bit_cast<F>(_mm_max_ps(std::bit_cast<__m128>(x), std::bit_cast<__m128>(y)));
#endif
  return x > y ? x : y;
}

// x < y ? x : y, as above.
template <class F>
__forceinline__ F smaller(F x, F y) {
#if defined(__AVX512F__)
  if constexpr (sizeof(F) == 64) {
    return std::bit_cast<F>(
        _mm512_maskz_min_ps(0xffff, std::bit_cast<__m512>(x), std::bit_cast<__m512>(y)));
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(F) == 32)
    return std::bit_cast<F>(_mm256_min_ps(std::bit_cast<__m256>(x), std::bit_cast<__m256>(y)));
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(F) == 16)
    return std::bit_cast<F>(_mm_min_ps(std::bit_cast<__m128>(x), std::bit_cast<__m128>(y)));
#endif
  return x < y ? x : y;
}

}  // namespace llmc::host
