// Storage types of tensors. Arithmetic is in fp32: to_float widens a stored value, from_float<T>
// rounds it back.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace llmc {

// bfloat16: the upper half of an fp32 number. Storage only.
struct bf16 {
  std::uint16_t bits;
};

// IEEE 754 binary16: 5 exponent bits, 10 fraction bits, magnitudes from 6e-8 to 65504. Storage
// only.
struct fp16 {
  std::uint16_t bits;
};

// int8: only quantized numbers (ops/quantize.h), which no --dtype selects.
enum class Dtype { fp32, bf16, fp16, int8 };

__host__ __device__ __forceinline__ float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

__host__ __device__ __forceinline__ std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

__host__ __device__ __forceinline__ float to_float(float x) {
  return x;
}
__host__ __device__ __forceinline__ float to_float(bf16 x) {
  return float_from_bits(std::uint32_t{x.bits} << 16);
}

// A code (ops/quantize.h) as an integer. A template, so that other integers convert to float.
template <class Code>
requires(std::is_same_v<Code, std::int8_t>) __host__ __device__ __forceinline__
    float to_float(Code code) {
  return static_cast<float>(code);
}

// Exact: every fp16 number is an fp32 number. The host code selects instead of branching, so that
// compilers can vectorise it.
__host__ __device__ __forceinline__ float to_float(fp16 x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x.bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13;
  // Changes the exponent bias from 15 to 127; the exponent of Inf and NaN goes from 31 to 255.
  const std::uint32_t bias = magnitude >= 0x0f800000u ? 224u : 112u;
  const std::uint32_t normal = magnitude + (bias << 23);
  // Subnormal: fraction * 2^-24 equals (1 + fraction * 2^-10) * 2^-14 - 2^-14.
  const std::uint32_t subnormal = bits_of(float_from_bits(magnitude + (113u << 23)) - 0x1p-14f);
  return float_from_bits(sign | (magnitude < 0x00800000u ? subnormal : normal));
#endif
}

// Rounds to nearest even; NaN stays NaN.
__host__ __device__ __forceinline__ bf16 round_to_bf16(float x) {
#ifdef __CUDA_ARCH__
  return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  // Adds half a unit of the last kept bit, minus 1 if that bit is 0, so that ties go to even.
  return bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// Rounds to nearest even; magnitudes of 65520 and more become infinity. NaN stays NaN.
__host__ __device__ __forceinline__ fp16 round_to_fp16(float x) {
#ifdef __CUDA_ARCH__
  return fp16{__half_as_ushort(__float2half_rn(x))};
#else
  const std::uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  // As in round_to_bf16, after changing the exponent bias from 127 to 15. Values that are too large
  // exceed the bits of infinity (0x7c00) and are clamped to them.
  const std::uint32_t rebiased = magnitude - (112u << 23);
  const std::uint32_t normal = (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13;
  const std::uint32_t finite = normal < 0x7c00u ? normal : 0x7c00u;
  // Below 2^-14: fp32 numbers in [0.5, 1) are 2^-24 apart, as are fp16 subnormals, so adding 0.5
  // rounds to a subnormal.
  const std::uint32_t subnormal = bits_of(float_from_bits(magnitude) + 0.5f) - bits_of(0.5f);
  const std::uint32_t rounded = magnitude < 0x38800000u ? subnormal : finite;
  return fp16{static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : rounded))};
#endif
}

template <class T>
__host__ __device__ __forceinline__ T from_float(float x);
template <>
__host__ __device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__host__ __device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return round_to_bf16(x);
}

template <>
__host__ __device__ __forceinline__ fp16 from_float<fp16>(float x) {
  return round_to_fp16(x);
}

// Dtype of a storage type. For any other type it is declared but not defined, so using it fails to
// link.
template <class T>
extern const Dtype kDtypeOf;
template <>
inline constexpr Dtype kDtypeOf<float> = Dtype::fp32;
template <>
inline constexpr Dtype kDtypeOf<bf16> = Dtype::bf16;
template <>
inline constexpr Dtype kDtypeOf<fp16> = Dtype::fp16;
template <>
inline constexpr Dtype kDtypeOf<std::int8_t> = Dtype::int8;

inline const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return "bf16";
    case Dtype::fp16:
      return "fp16";
    case Dtype::int8:
      return "int8";
    default:
      return "fp32";
  }
}

inline Dtype parse_dtype(std::string_view name) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  fail("unknown dtype '" + std::string(name) + "': expected fp32, bf16 or fp16");
}

// Calls f.template operator()<T>() with the storage type T of `dtype`. This is the only place where
// a run-time dtype becomes a type.
template <class F>
decltype(auto) dispatch_dtype(Dtype dtype, F&& f) {
  if (dtype == Dtype::bf16) return f.template operator()<bf16>();
  if (dtype == Dtype::fp16) return f.template operator()<fp16>();
  return f.template operator()<float>();
}

// Bytes of a number.
inline std::int64_t element_bytes(Dtype dtype) {
  return dispatch_dtype(dtype, []<class T>() { return static_cast<std::int64_t>(sizeof(T)); });
}

}  // namespace llmc
