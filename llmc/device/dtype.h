// Number types that tensors are stored in. Arithmetic is in fp32: a value is read with to_float and
// rounded back with from_float<T>. fp16 joins here (storage, conversions, one case in dispatch).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "llmc/device/error.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace llmc {

// bfloat16: the upper half of an fp32 number. Storage only.
struct bf16 {
  std::uint16_t bits;
};

enum class Dtype { fp32, bf16 };

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

// Rounds to nearest even; NaN stays NaN.
__host__ __device__ __forceinline__ bf16 round_to_bf16(float x) {
#ifdef __CUDA_ARCH__
  return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  // Half a unit in the last place, one less when the kept part is even: ties go to even.
  return bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
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

template <class T>
inline constexpr Dtype kDtypeOf = Dtype::fp32;
template <>
inline constexpr Dtype kDtypeOf<bf16> = Dtype::bf16;

inline const char* dtype_name(Dtype dtype) {
  return dtype == Dtype::fp32 ? "fp32" : "bf16";
}

inline Dtype parse_dtype(std::string_view name) {
  if (name == "fp32") return Dtype::fp32;
  if (name == "bf16") return Dtype::bf16;
  fail("unknown dtype '" + std::string(name) + "'", "allowed: fp32, bf16");
}

// Calls f.template operator()<T>() with the storage type of `dtype`: the one place where a run-time
// dtype becomes a type.
template <class F>
decltype(auto) dispatch_dtype(Dtype dtype, F&& f) {
  if (dtype == Dtype::bf16) return f.template operator()<bf16>();
  return f.template operator()<float>();
}

}  // namespace llmc
