// Words of 32 bits, the operands of products that one thread sums up (block_threads.h): a word is
// an fp32 number, or two bf16 numbers that are adjacent along the dimension of the sum, the earlier
// one in the lower half. So loops over tiles of words serve both dtypes, and each step of a sum
// adds one product of fp32 numbers or two of bf16.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "llmc/device/dtype.h"
#include "llmc/device/floats.h"
#include "llmc/device/target.h"
#ifndef __CUDACC__
#include "llmc/device/host/simd_words.h"
#endif

namespace llmc {

using Word = std::uint32_t;

// Numbers in a word.
template <class E>
inline constexpr int kWordNumbers = 4 / static_cast<int>(sizeof(E));

// Whether this processor multiplies words of two bf16 numbers; with other instructions, fp32 is
// faster.
#ifdef __CUDACC__
inline constexpr bool kMultipliesPairs = false;
#else
inline constexpr bool kMultipliesPairs = host::kMultipliesPairs;
#endif

// The type in which words hold numbers of T.
template <class T>
using WordElement = std::conditional_t<std::is_same_v<T, bf16> && kMultipliesPairs, bf16, float>;

// N words in registers.
template <int N>
class Words {
 public:
  static constexpr int kWidth = Floats<N>::kWidth;
  static constexpr int kRegisters = Floats<N>::kRegisters;
#ifdef __CUDACC__
  using Register = Word;
#else
  using Register = typename host::Simd<kWidth>::Bits;
#endif

  // All words are w.
  __device__ __forceinline__ explicit Words(Word w = 0) {
    for (int i = 0; i < kRegisters; ++i) registers_[i] = w - Register{};
  }

  __device__ __forceinline__ Register& in_register(int i) {
    return registers_[i];
  }
  __device__ __forceinline__ const Register& in_register(int i) const {
    return registers_[i];
  }

 private:
  Register registers_[kRegisters];
};

template <int N>
__device__ __forceinline__ Words<N> load_words(const Word* p) {
  Words<N> x;
  for (int i = 0; i < Words<N>::kRegisters; ++i)
    std::memcpy(&x.in_register(i), p + i * Words<N>::kWidth, sizeof x.in_register(i));
  return x;
}
template <int N>
__device__ __forceinline__ void store_words(Word* p, const Words<N>& x) {
  for (int i = 0; i < Words<N>::kRegisters; ++i)
    std::memcpy(p + i * Words<N>::kWidth, &x.in_register(i), sizeof x.in_register(i));
}

// The bits of fp32 numbers, and back.
template <int N>
__device__ __forceinline__ Words<N> words_of(const Floats<N>& x) {
  Words<N> words;
  for (int i = 0; i < Words<N>::kRegisters; ++i)
    std::memcpy(&words.in_register(i), &x.in_register(i), sizeof x.in_register(i));
  return words;
}
template <int N>
__device__ __forceinline__ Floats<N> floats_in(const Words<N>& words) {
  Floats<N> x;
  for (int i = 0; i < Words<N>::kRegisters; ++i)
    std::memcpy(&x.in_register(i), &words.in_register(i), sizeof x.in_register(i));
  return x;
}

// x and y rounded to bf16, x in the lower halves.
template <int N>
__device__ __forceinline__ Words<N> paired(const Floats<N>& x, const Floats<N>& y) {
  Words<N> words;
  for (int i = 0; i < Words<N>::kRegisters; ++i) {
#ifdef __CUDACC__
    words.in_register(i) =
        bits_of(to_float(from_float<bf16>(x[i]))) >> 16 | bits_of(to_float(from_float<bf16>(y[i])));
#else
    words.in_register(i) = host::paired<Words<N>::kWidth>(x.in_register(i), y.in_register(i));
#endif
  }
  return words;
}

// Element j of the two rows in word j.
template <int N>
__device__ __forceinline__ Words<N> load_paired(const bf16* lower, const bf16* upper) {
  Words<N> words;
  for (int i = 0; i < Words<N>::kRegisters; ++i) {
#ifdef __CUDACC__
    words.in_register(i) = lower[i].bits | std::uint32_t{upper[i].bits} << 16;
#else
    constexpr int W = Words<N>::kWidth;
    words.in_register(i) = host::load_bits<W>(lower + i * W) | host::load_bits<W>(upper + i * W)
                                                                   << 16;
#endif
  }
  return words;
}

// x rounded to E and written in order.
template <class E, int N>
__device__ __forceinline__ void store_in_order(Word* p, const Floats<N>& x) {
#ifndef __CUDACC__
  if constexpr (std::is_same_v<E, bf16>) return host::store_rounded<N>(p, &x.in_register(0));
#endif
  store_floats(reinterpret_cast<E*>(p), x);
}

// sum + a * b, for words of E. The products of a pair are added one after the other.
template <class E, int N>
__device__ __forceinline__ Floats<N> add_products(const Floats<N>& sum, const Words<N>& a,
                                                  const Words<N>& b) {
  if constexpr (std::is_same_v<E, float>) {
    return multiply_add(floats_in(a), floats_in(b), sum);
  } else {
    static_assert(std::is_same_v<E, bf16>);
    Floats<N> result;
    for (int i = 0; i < Words<N>::kRegisters; ++i) {
      const auto x = a.in_register(i), y = b.in_register(i);
#ifdef __CUDACC__
      const float lower = std::fma(float_from_bits(x << 16), float_from_bits(y << 16), sum[i]);
      result.in_register(i) =
          std::fma(float_from_bits(x & 0xffff0000u), float_from_bits(y & 0xffff0000u), lower);
#else
      result.in_register(i) = host::add_pairs<Words<N>::kWidth>(sum.in_register(i), x, y);
#endif
    }
    return result;
  }
}

}  // namespace llmc
