// Floats in SIMD registers, their conversions from and to stored numbers, and the transpose of a
// square. Vector types of the compiler are used explicitly: compilers do not vectorise arrays of
// small structs by themselves.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "llmc/device/dtype.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmc::host {

// Floats in the widest register, and the number of these registers.
#if defined(__AVX512F__)
inline constexpr int kSimdWidth = 16;
inline constexpr int kSimdRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kSimdWidth = 8;
inline constexpr int kSimdRegisters = 16;
#else
inline constexpr int kSimdWidth = 4;
inline constexpr int kSimdRegisters = 16;
#endif

// A register of W floats, of W numbers of 32 bits, of W numbers of 16 bits, and of W bytes.
template <int W>
struct Simd {
  typedef float Float __attribute__((vector_size(4 * W)));
  typedef std::int32_t Integer __attribute__((vector_size(4 * W)));
  typedef std::uint32_t Bits __attribute__((vector_size(4 * W)));
  typedef std::uint16_t Half __attribute__((vector_size(2 * W)));
  typedef std::uint8_t Byte __attribute__((vector_size(W)));
};
template <>
struct Simd<1> {
  using Float = float;
  using Integer = std::int32_t;
  using Bits = std::uint32_t;
  using Half = std::uint16_t;
  using Byte = std::uint8_t;
};

// W stored numbers as floats; the same results as to_float (dtype.h).
template <int W>
__forceinline__ typename Simd<W>::Float load_register(const float* p) {
  typename Simd<W>::Float x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

// W numbers of 16 bits, widened with zeros, and the lower halves of W numbers, stored. The
// instructions of x86 are named: GCC 12 converts 4 numbers at a time.
template <int W>
__forceinline__ typename Simd<W>::Bits load_bits(const void* p) {
  typename Simd<W>::Half half;
  std::memcpy(&half, p, sizeof half);
#if defined(__AVX2__)
  if constexpr (W == 8) {
    const auto bits = _mm256_cvtepu16_epi32(std::bit_cast<__m128i>(half));
    return std::bit_cast<typename Simd<W>::Bits>(bits);
  }
#endif
#if defined(__AVX512F__)
  if constexpr (W == 16) {
    const auto bits = _mm512_maskz_cvtepu16_epi32(0xffff, std::bit_cast<__m256i>(half));
    return std::bit_cast<typename Simd<W>::Bits>(bits);
  }
#endif
  return __builtin_convertvector(half, typename Simd<W>::Bits);
}
template <int W>
__forceinline__ void store_bits(void* p, const typename Simd<W>::Bits& bits) {
#if defined(__AVX512F__)
  if constexpr (W == 16) {
    const __m256i half = _mm512_maskz_cvtepi32_epi16(0xffff, std::bit_cast<__m512i>(bits));
    std::memcpy(p, &half, sizeof half);
    return;
  }
#endif
  const auto half = __builtin_convertvector(bits, typename Simd<W>::Half);
  std::memcpy(p, &half, sizeof half);
}

template <int W>
__forceinline__ typename Simd<W>::Float load_register(const bf16* p) {
  return std::bit_cast<typename Simd<W>::Float>(load_bits<W>(p) << 16);
}
template <int W>
__forceinline__ typename Simd<W>::Float load_register(const fp16* p) {
  using Float = typename Simd<W>::Float;
  using Bits = typename Simd<W>::Bits;
  const Bits bits = load_bits<W>(p);
  const Bits sign = (bits & 0x8000u) << 16;
  const Bits magnitude = (bits & 0x7fffu) << 13;
  const Bits normal =
      magnitude + (magnitude >= 0x0f800000u ? Bits{} + (224u << 23) : Bits{} + (112u << 23));
  const Bits subnormal =
      std::bit_cast<Bits>(std::bit_cast<Float>(magnitude + (113u << 23)) - 0x1p-14f);
  return std::bit_cast<Float>(sign | (magnitude < 0x00800000u ? subnormal : normal));
}

template <int W>
__forceinline__ typename Simd<W>::Float load_register(const std::int8_t* p) {
  if constexpr (W == 1) {
    return static_cast<float>(*p);
  } else {
    typedef std::int8_t Codes __attribute__((vector_size(W)));
    Codes codes;
    std::memcpy(&codes, p, sizeof codes);
    return __builtin_convertvector(codes, typename Simd<W>::Float);
  }
}

// Rounds W floats as from_float<T> does.
template <int W>
__forceinline__ void store_register(float* p, const typename Simd<W>::Float& x) {
  std::memcpy(p, &x, sizeof x);
}
template <int W>
__forceinline__ void store_register(bf16* p, const typename Simd<W>::Float& x) {
  using Bits = typename Simd<W>::Bits;
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  store_bits<W>(p, x == x ? rounded : (bits >> 16) | 0x40u);
}
template <int W>
__forceinline__ void store_register(fp16* p, const typename Simd<W>::Float& x) {
  using Bits = typename Simd<W>::Bits;
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits rebiased = magnitude - (112u << 23);
  const Bits normal = (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13;
  const Bits finite = normal < 0x7c00u ? normal : Bits{} + 0x7c00u;
  const Bits subnormal =
      std::bit_cast<Bits>(std::bit_cast<typename Simd<W>::Float>(magnitude) + 0.5f) - 0x3f000000u;
  const Bits result = magnitude < 0x38800000u ? subnormal : finite;
  store_bits<W>(p, (bits >> 16 & 0x8000u) | (x == x ? result : Bits{} + 0x7e00u));
}

// Writes the lowest byte of the bits of each of W floats. The instructions of x86 are named,
// because compilers narrow numbers in several steps.
template <int W>
__forceinline__ void store_low_bytes(std::int8_t* p, const typename Simd<W>::Float& x) {
  const auto bits = std::bit_cast<typename Simd<W>::Bits>(x);
  if constexpr (W == 1) {
    *p = static_cast<std::int8_t>(bits & 0xffu);
#if defined(__AVX512VL__)
  } else if constexpr (W == 16) {
    const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, std::bit_cast<__m512i>(bits));
    std::memcpy(p, &bytes, W);
  } else if constexpr (W == 8) {
    const __m128i bytes = _mm256_maskz_cvtepi32_epi8(0xff, std::bit_cast<__m256i>(bits));
    std::memcpy(p, &bytes, W);
#endif
  } else {
    const auto bytes = __builtin_convertvector(bits, typename Simd<W>::Byte);
    std::memcpy(p, &bytes, sizeof bytes);
  }
}

// x * y + z. Instructions of x86 are named, because a compiler is free to fuse one x * y + z and
// not the next. Other targets rely on the compiler's default, which fuses within an expression.
template <int W>
__forceinline__ typename Simd<W>::Float multiply_add(const typename Simd<W>::Float& x,
                                                     const typename Simd<W>::Float& y,
                                                     const typename Simd<W>::Float& z) {
#if defined(__AVX512F__)
  constexpr int kCurrentRounding = 4;
  if constexpr (W == 16) return __builtin_ia32_vfmaddps512_mask(x, y, z, 0xffff, kCurrentRounding);
#endif
#if defined(__FMA__)
  if constexpr (W == 8) return __builtin_ia32_vfmaddps256(x, y, z);
  if constexpr (W == 4) return __builtin_ia32_vfmaddps(x, y, z);
  if constexpr (W == 1) return __builtin_fmaf(x, y, z);
#endif
  return x * y + z;
}

// The same, rounded once on every processor: without the instruction, element by element.
template <int W>
__forceinline__ typename Simd<W>::Float fused_multiply_add(const typename Simd<W>::Float& x,
                                                           const typename Simd<W>::Float& y,
                                                           const typename Simd<W>::Float& z) {
#if defined(__FMA__)
  return multiply_add<W>(x, y, z);
#else
  if constexpr (W == 1) {
    return __builtin_fmaf(x, y, z);
  } else {
    typename Simd<W>::Float result;
    for (int k = 0; k < W; ++k) result[k] = __builtin_fmaf(x[k], y[k], z[k]);
    return result;
  }
#endif
}

// combine(a, b) of the elements k and k + W/2, and so on until one is left. combine takes registers
// and floats; W is 4, 8 or 16.
template <int W, class Combine>
__forceinline__ float reduce_halves(const typename Simd<W>::Float& x, const Combine& combine) {
  if constexpr (W == 4) {
    return combine(combine(x[0], x[2]), combine(x[1], x[3]));
  } else if constexpr (W == 8) {
    return reduce_halves<4>(combine(__builtin_shufflevector(x, x, 0, 1, 2, 3),
                                    __builtin_shufflevector(x, x, 4, 5, 6, 7)),
                            combine);
  } else {
    static_assert(W == 16);
    return reduce_halves<8>(combine(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                                    __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)),
                            combine);
  }
}

// first, first + 1, ..., first + W - 1.
template <int W>
__forceinline__ typename Simd<W>::Integer integers_from(int first) {
  typename Simd<W>::Integer i{};
  if constexpr (W == 1) {
    return first;
  } else {
    for (int k = 0; k < W; ++k) i[k] = k;
    return i + first;
  }
}

// out = in, transposed; row i is register i.
__forceinline__ void transpose_8x8(Simd<8>::Float (&out)[8], const Simd<8>::Float (&in)[8]) {
  // Merges single elements of rows i and i + 1, then pairs of i and i + 2, then halves.
  Simd<8>::Float a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const auto x = b[i + j], y = b[i + j + 2];
      a[i + 2 * j] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 2 * j + 1] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const auto x = a[i], y = a[i + 4];
    out[i] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11);
    out[i + 4] = __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// The same for numbers of 16 bits.
__forceinline__ void transpose_8x8(Simd<8>::Half (&out)[8], const Simd<8>::Half (&in)[8]) {
  // Merges single elements of rows i and i + 4 three times: a perfect shuffle of all 64.
  Simd<8>::Half a[8], b[8];
  const auto merge = [](Simd<8>::Half(&to)[8], const Simd<8>::Half(&from)[8]) {
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __builtin_shufflevector(from[i], from[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  };
  merge(a, in);
  merge(b, a);
  merge(out, b);
}

}  // namespace llmc::host
