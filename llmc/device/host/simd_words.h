// Words of two bf16 numbers in SIMD registers (device/words.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "llmc/device/dtype.h"
#include "llmc/device/host/simd.h"

namespace llmc::host {

#if defined(__AVX512BF16__)
inline constexpr bool kMultipliesPairs = true;
#else
inline constexpr bool kMultipliesPairs = false;
#endif

// The upper halves of words as floats, and the lower ones.
template <int W>
__forceinline__ typename Simd<W>::Float upper_floats(const typename Simd<W>::Bits& words) {
  return std::bit_cast<typename Simd<W>::Float>(words & 0xffff0000u);
}
template <int W>
__forceinline__ typename Simd<W>::Float lower_floats(const typename Simd<W>::Bits& words) {
  return std::bit_cast<typename Simd<W>::Float>(words << 16);
}

// sum + the products of both halves. The processor's instruction takes subnormal numbers for 0.
template <int W>
__forceinline__ typename Simd<W>::Float add_pairs(const typename Simd<W>::Float& sum,
                                                  const typename Simd<W>::Bits& a,
                                                  const typename Simd<W>::Bits& b) {
#if defined(__AVX512BF16__)
  if constexpr (W == 16) {
    return std::bit_cast<typename Simd<W>::Float>(_mm512_dpbf16_ps(
        std::bit_cast<__m512>(sum), std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b)));
  }
#endif
  const auto lower = multiply_add<W>(lower_floats<W>(a), lower_floats<W>(b), sum);
  return multiply_add<W>(upper_floats<W>(a), upper_floats<W>(b), lower);
}

// sum + a * b for registers of words of E.
template <class E, int W>
__forceinline__ typename Simd<W>::Float add_words(const typename Simd<W>::Float& sum,
                                                  const typename Simd<W>::Bits& a,
                                                  const typename Simd<W>::Bits& b) {
  using Float = typename Simd<W>::Float;
  if constexpr (sizeof(E) == sizeof(float)) {
    return multiply_add<W>(std::bit_cast<Float>(a), std::bit_cast<Float>(b), sum);
  } else {
    return add_pairs<W>(sum, a, b);
  }
}

// N floats in registers, rounded to bf16 and written in order.
template <int N, class Register>
__forceinline__ void store_rounded(void* p, const Register* x) {
  constexpr int W = static_cast<int>(sizeof(Register) / sizeof(float));
  bf16* const out = static_cast<bf16*>(p);
  for (int i = 0; i < N / W; ++i) {
#if defined(__AVX512BF16__)
    if constexpr (W == 16) {
      const auto rounded = _mm512_cvtneps_pbh(std::bit_cast<__m512>(x[i]));
      std::memcpy(out + i * W, &rounded, sizeof rounded);
      continue;
    }
#endif
    store_register<W>(out + i * W, x[i]);
  }
}

// x and y rounded to bf16, x in the lower halves.
template <int W>
__forceinline__ typename Simd<W>::Bits paired(const typename Simd<W>::Float& x,
                                              const typename Simd<W>::Float& y) {
  bf16 lower[W], upper[W];
  store_rounded<W>(lower, &x);
  store_rounded<W>(upper, &y);
  return load_bits<W>(lower) | load_bits<W>(upper) << 16;
}

}  // namespace llmc::host
