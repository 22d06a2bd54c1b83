// Sums of products of codes in SIMD registers. Integer sums are exact, so every form here has the
// same results.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "llmc/device/host/simd.h"

namespace llmc::host {

// The sums of 16 columns.
using CodeSums = Simd<16>::Integer;

// Four unsigned codes of a row, u[0] in the lowest byte.
inline std::uint32_t four_codes(const std::uint8_t* u) {
  std::uint32_t word;
  std::memcpy(&word, u, sizeof word);
  return word;
}

// sums[c] += u[0] w[4c] + ... + u[3] w[4c + 3], by shifts and multiplications of any target. Not
// the form of a fast processor.
__forceinline__ void add_code_products_plain(CodeSums& sums, std::uint32_t u,
                                             const std::int8_t* w) {
  CodeSums words;
  std::memcpy(&words, w, sizeof words);
  for (int i = 0; i < 4; ++i) {
    const auto code = static_cast<std::int32_t>(u >> (8 * i) & 0xffu);
    const CodeSums weights =
        std::bit_cast<CodeSums>(std::bit_cast<Simd<16>::Bits>(words) << (24 - 8 * i)) >> 24;
    sums += weights * code;
  }
}

#if defined(__AVX2__)
// The same with products of 16 bits. The instruction that multiplies bytes saturates its sums.
__forceinline__ void add_code_products_avx2(CodeSums& sums, std::uint32_t u, const std::int8_t* w) {
  const __m256i even = _mm256_set1_epi32(static_cast<int>(u & 0x00ff00ffu));
  const __m256i odd = _mm256_set1_epi32(static_cast<int>(u >> 8 & 0x00ff00ffu));
  __m256i halves[2];
  std::memcpy(halves, &sums, sizeof halves);
  for (int i = 0; i < 2; ++i) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w) + i);
    const __m256i even_weights = _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8);
    const __m256i odd_weights = _mm256_srai_epi16(words, 8);
    halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(even, even_weights));
    halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(odd, odd_weights));
  }
  std::memcpy(&sums, halves, sizeof sums);
}
#endif

// sums[c] += u[0] w[4c] + u[1] w[4c + 1] + u[2] w[4c + 2] + u[3] w[4c + 3] for 16 columns c: the
// codes u of a row are unsigned, the weights w, 64 bytes, are signed.
__forceinline__ void add_code_products(CodeSums& sums, std::uint32_t u, const std::int8_t* w) {
#if defined(__AVX512VNNI__)
  sums = std::bit_cast<CodeSums>(_mm512_dpbusd_epi32(
      std::bit_cast<__m512i>(sums), _mm512_set1_epi32(static_cast<int>(u)), _mm512_loadu_si512(w)));
#elif defined(__AVX2__)
  add_code_products_avx2(sums, u, w);
#else
  add_code_products_plain(sums, u, w);
#endif
}

// The codes of term i (0 .. 3) of W columns as floats; w has four terms of each column.
template <int W>
__forceinline__ typename Simd<W>::Float codes_as_floats(const std::int8_t* w, int i) {
  typename Simd<W>::Bits words;
  std::memcpy(&words, w, sizeof words);
  const auto codes = std::bit_cast<typename Simd<W>::Integer>(words << (24 - 8 * i)) >> 24;
  return __builtin_convertvector(codes, typename Simd<W>::Float);
}

}  // namespace llmc::host
