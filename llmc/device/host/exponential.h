// e^x and 2^x in fp32. F is float or a vector type of the compiler. Compilers do not vectorise
// loops over the versions for one number reliably: they may replace a clamp by a branch.
//
// e^x is 2^n * e^r with an integer n and |r| <= ln(2) / 2, and e^r is its Taylor polynomial of
// degree 7, whose remainder is below r^8 / 8! = 5.2e-9, a tenth of the rounding error. 2^x is 2^n *
// 2^r with |r| <= 1/2, and 2^r is the polynomial with the smallest largest relative error among
// those that are 1 at 0: 2.0e-9 with degree 6, and 9.1e-8 with degree 5 (fast_exp2).
// test_host_exponential.cpp checks all exponents against the C library.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "llmc/device/host/extremes.h"
#include "llmc/device/target.h"

namespace llmc::host {

// 1.5 * 2^23: adding it rounds a number of magnitude below 2^22 to an integer, which is then in the
// lowest bits of the sum.
inline constexpr float kRoundToInteger = 12582912.0f;

// Integers as wide as F.
template <class F>
struct IntegersOf {
#ifndef __CUDACC__
  typedef std::uint32_t Unsigned __attribute__((vector_size(sizeof(F))));
  typedef std::int32_t Signed __attribute__((vector_size(sizeof(F))));
#endif
};
template <>
struct IntegersOf<float> {
  using Unsigned = std::uint32_t;
  using Signed = std::int32_t;
};
template <class F>
using Unsigned = typename IntegersOf<F>::Unsigned;
template <class F>
using Signed = typename IntegersOf<F>::Signed;

// Returns the integer that `sum` = x + kRoundToInteger holds; 0 bits of a NaN are meaningless.
template <class F>
__forceinline__ Unsigned<F> integer_bits(F sum) {
  return std::bit_cast<Unsigned<F>>(sum) - std::bit_cast<std::uint32_t>(kRoundToInteger);
}

// y * 2^n for |n| <= 252 and the integer n that `sum` = x + kRoundToInteger holds. Results below
// the normal range are rounded as usual.
template <class F>
__forceinline__ F multiply_by_power(F y, F sum) {
#if defined(__AVX512F__)
  if constexpr (sizeof(F) == 64) {
    const auto n = std::bit_cast<__m512>(sum - kRoundToInteger);
    // With a mask, because GCC 12 warns about the form without.
    return std::bit_cast<F>(_mm512_maskz_scalef_ps(0xffff, std::bit_cast<__m512>(y), n));
  }
#endif
  // Two factors, because 2^n itself may be beyond the range of fp32.
  const Unsigned<F> n = integer_bits(sum);
  const auto half = std::bit_cast<Unsigned<F>>(std::bit_cast<Signed<F>>(n) >> 1);
  const F first = std::bit_cast<F>((half + 127) << 23);
  const F second = std::bit_cast<F>((n - half + 127) << 23);
  return y * first * second;
}

template <class F>
__forceinline__ F exp_polynomial(F r) {
  F p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

// Limits x to [-limit, limit], at which the results are already 0 and infinity. NaN stays NaN.
template <class F>
__forceinline__ F clamp_exponent(F x, float limit) {
  return smaller(F{} + limit, larger(F{} - limit, x));
}

// 2^r for |r| <= 1/2.
template <class F>
__forceinline__ F exp2_polynomial(F r) {
  F p = r * 1.53533619e-4f + 1.33988750e-3f;
  p = p * r + 9.61843692e-3f;
  p = p * r + 5.55033237e-2f;
  p = p * r + 0.24022647738f;
  p = p * r + 0.69314718246f;
  return p * r + 1.0f;
}
template <class F>
__forceinline__ F fast_exp2_polynomial(F r) {
  F p = r * 1.32647273e-3f + 9.67151299e-3f;
  p = p * r + 5.55073358e-2f;
  p = p * r + 0.24022242427f;
  p = p * r + 0.69314700365f;
  return p * r + 1.0f;
}

// 2^x, if polynomial(r) is 2^r.
template <class F, class Polynomial>
__forceinline__ F exp2_by(F x, const Polynomial& polynomial) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(F) == 64) {  // has instructions for x minus its nearest integer, and for 2^n
    const auto bits = std::bit_cast<__m512>(x);
    const F r = std::bit_cast<F>(_mm512_maskz_reduce_ps(0xffff, bits, 0));
    const auto n = std::bit_cast<__m512>(x - r);
    return std::bit_cast<F>(
        _mm512_maskz_scalef_ps(0xffff, std::bit_cast<__m512>(polynomial(r)), n));
  }
#endif
  x = clamp_exponent(x, 200.0f);
  const F sum = x + kRoundToInteger;
  const F n = sum - kRoundToInteger;
  return multiply_by_power(polynomial(x - n), sum);
}

template <class F>
__forceinline__ F exp2(F x) {
  return exp2_by(x, [](F r) { return exp2_polynomial(r); });
}

template <class F>
__forceinline__ F fast_exp2(F x) {
  return exp2_by(x, [](F r) { return fast_exp2_polynomial(r); });
}

template <class F>
__forceinline__ F exp(F x) {
  constexpr float kLog2E = 1.44269504088896340736f;
  // ln(2) in two parts. The first has few bits, so that its product with n is exact.
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  x = clamp_exponent(x, 138.0f);
  const F sum = x * kLog2E + kRoundToInteger;
  const F n = sum - kRoundToInteger;
  const F r = (x - n * kLn2High) - n * kLn2Low;
  return multiply_by_power(exp_polynomial(r), sum);
}

}  // namespace llmc::host
