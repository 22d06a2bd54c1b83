// Floating-point arithmetic with the rounding that the manual of PTX states.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace llmc_ptx {

inline constexpr std::uint32_t kCanonicalNan = 0x7FFFFFFF;

inline float flush_subnormal(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// bf16 has the upper half of a float's bits; ties to even.
inline float from_bf16(std::uint16_t x) {
  return std::bit_cast<float>(std::uint32_t{x} << 16);
}
inline std::uint16_t to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float from_fp16(std::uint16_t x) {
  return static_cast<float>(std::bit_cast<_Float16>(x));
}
inline std::uint16_t to_fp16(float x) {
  return x != x ? std::uint16_t{0x7FFF} : std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
}

// a * b + c, rounded down. The product is exact in double; so is the error of the sum.
inline float fma_down(float a, float b, float c) {
  const double product = double{a} * double{b}, sum = product + double{c};
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product;
  const double error = (product - (sum - part)) + (double{c} - part);
  const float rounded = static_cast<float>(sum);
  const bool above = double{rounded} > sum || (double{rounded} == sum && error < 0);
  return above ? std::nextafter(rounded, -std::numeric_limits<float>::infinity()) : rounded;
}

}  // namespace llmc_ptx
