// The quantizer of INT8. Training (--qat) and inference use it, and nothing else rounds to codes.
//
//   code = round(x / scale + zero), clamped to [-128, 127];   x is about scale * (code - zero)
//
// Symmetric quantization, for weights, keys and values: scale = max |x| / 127 and zero = 0, so the
// codes are in [-127, 127]. Asymmetric quantization, for activations: the codes -128 .. 127 cover
// the range of the values, extended to contain 0. A range on one side of 0, as after GELU, then has
// twice the resolution. 0 has an exact code in both.
//
// Rounding is to the nearest integer, ties to even, of the exact value of x * (1 / scale) + zero
// with 1 / scale rounded to fp32. scale is at least the smallest normal number, so 1 / scale is
// finite and rows of denormal numbers have codes as well. A range that is not finite has the scale
// NaN, which makes all results of the row NaN.
#pragma once

#include <cfloat>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"

namespace llmc {

struct Quantization {
  float scale = 1;
  std::int32_t zero = 0;

  __host__ __device__ bool finite() const { return scale <= FLT_MAX; }
};

// The range of some numbers and 0. One that is not finite makes `max` infinite.
struct ValueRange {
  float min = 0, max = 0;

  __host__ __device__ void add(float x) {
    if (x > max) max = x;
    if (x < min) min = x;
    if (!(x - x == 0)) max = std::numeric_limits<float>::infinity();  // infinity or NaN
  }
  __host__ __device__ ValueRange merged(const ValueRange& other) const {
    return {other.min < min ? other.min : min, other.max > max ? other.max : max};
  }
};

// Collects the range of numbers that come in vectors of N.
template <int N>
class RangeOfVectors {
 public:
  __device__ __forceinline__ void add(const Floats<N>& x) {
    max_ = max_elements(max_, x);
    min_ = min_elements(min_, x);
    zeros_ = multiply_add(x, Floats<N>(), zeros_);  // NaN for infinity and NaN
  }
  __device__ __forceinline__ ValueRange range() const {
    const bool finite = sum_of(zeros_) == 0;
    return {-max_of(Floats<N>() - min_), finite ? max_of(max_) : __builtin_huge_valf()};
  }

 private:
  Floats<N> max_, min_, zeros_;
};

// ---- codes -----------------------------------------------------------------------------------

namespace quantize_detail {
// 1.5 * 2^23: floats of this size are integers, and the lowest byte of kRounding + i is that of i.
inline constexpr float kRounding = 12582912.0f;

// kRounding + code of each number. `offsets` are kRounding + the zero points.
template <int N>
__device__ __forceinline__ Floats<N> rounded_codes(const Floats<N>& x, const Floats<N>& inverses,
                                                   const Floats<N>& offsets) {
  const Floats<N> above =
      max_elements(Floats<N>(kRounding - 128), fused_multiply_add(x, inverses, offsets));
  return min_elements(Floats<N>(kRounding + 127), above);
}
}  // namespace quantize_detail

// Rounds numbers to codes. Its results for one number are the definition of the quantizer.
class CodeRounding {
 public:
  __host__ __device__ explicit CodeRounding(const Quantization& q)
      : inverse_(1.0f / q.scale), offset_(kRounding + static_cast<float>(q.zero)) {}

  __host__ __device__ std::int8_t code(float x) const {
    const float rounded = std::fma(x, inverse_, offset_);
    const float above = rounded > kRounding - 128 ? rounded : kRounding - 128;  // also for NaN
    const float clamped = above < kRounding + 127 ? above : kRounding + 127;
    return static_cast<std::int8_t>(bits_of(clamped) & 0xffu);
  }
  template <int N>
  __device__ __forceinline__ Vec<std::int8_t, N> codes(const Floats<N>& x) const {
    return low_bytes(quantize_detail::rounded_codes(x, Floats<N>(inverse_), Floats<N>(offset_)));
  }
  // code - zero of each number, an integer from -255 to 255.
  template <int N>
  __device__ __forceinline__ Floats<N> differences(const Floats<N>& x) const {
    const Floats<N> offset(offset_);
    return quantize_detail::rounded_codes(x, Floats<N>(inverse_), offset) - offset;
  }
  // Whether the code of x is not clamped.
  __host__ __device__ bool holds(float x) const {
    const float rounded = std::fma(x, inverse_, offset_);
    return rounded >= kRounding - 128 && rounded <= kRounding + 127;
  }

 private:
  static constexpr float kRounding = quantize_detail::kRounding;
  float inverse_, offset_;
};

// The codes of N numbers with symmetric quantization and a scale each, as floats.
template <int N>
__device__ __forceinline__ Floats<N> symmetric_codes(const Floats<N>& x, const Floats<N>& scales) {
  const Floats<N> offset(quantize_detail::kRounding);
  return quantize_detail::rounded_codes(x, Floats<N>(1.0f) / scales, offset) - offset;
}

// ---- scales ----------------------------------------------------------------------------------

namespace quantize_detail {
__host__ __device__ inline float valid_scale(float scale) {
  if (scale < FLT_MIN) return FLT_MIN;
  return scale <= FLT_MAX ? scale : __builtin_nanf("");
}
}  // namespace quantize_detail

__host__ __device__ inline Quantization symmetric_quantization(const ValueRange& range) {
  const float magnitude = range.max > -range.min ? range.max : -range.min;
  return {quantize_detail::valid_scale(magnitude / 127), 0};
}

__host__ __device__ inline Quantization asymmetric_quantization(const ValueRange& range) {
  Quantization q{quantize_detail::valid_scale(range.max / 255 - range.min / 255), -128};
  q.zero = q.finite() ? CodeRounding(q).code(-range.min) : 0;
  return q;
}

// The quantization of activations.
__host__ __device__ inline Quantization activation_quantization(const ValueRange& range,
                                                                bool zero_points) {
  return zero_points ? asymmetric_quantization(range) : symmetric_quantization(range);
}

// The number that a code stands for.
__host__ __device__ inline float dequantize(std::int8_t code, const Quantization& q) {
  return q.scale * static_cast<float>(code - q.zero);
}

// The results of a product from its sums of codes: sum * row_scale * column_scale + bias, where a
// sum is that of (code - zero) of the row times the code of the weight, over all terms. One
// rounding of the product of the scales and one of the rest. Rows that are not quantized have the
// scale 1.
template <int N>
__device__ __forceinline__ Floats<N> dequantize_sums(const Floats<N>& sums, float row_scale,
                                                     const Floats<N>& column_scales,
                                                     const Floats<N>& bias) {
  return fused_multiply_add(sums, row_scale * column_scales, bias);
}

}  // namespace llmc
