// Products of INT8 codes in floats, for quantization-aware training: the forward pass multiplies
// codes that are stored in T, and the backward pass uses the numbers that the codes stand for.
//
//   scales of the weights  ->  codes of weights and inputs in T  ->  product with fp32 sums
//                          ->  scaled_sums: sum * row scale * column scale + bias, rounded to T
//
// Integers up to 256 are exact in bf16 and fp16. Sums of products of codes are integers and exact
// in fp32 below 2^24, in any order: always if there are at most 1,040 products of symmetric codes
// (127 * 127), or 518 of inputs with zero points (255 * 127), and for longer sums unless nearly all
// codes are extreme. The results therefore have the bits of integer arithmetic.
//
// Gradients pass straight through the rounding, except where a code was clamped (clip_gradient).
// Weights are symmetric with the scale of their largest number, so none of their codes is clamped.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// The numbers of a quantized matrix: code - zero, or the numbers that the codes stand for.
enum class Quantized { codes, values };

// The axis of a weight along which scales differ: columns of a linear layer's weight (K, N), rows
// of the token embeddings.
enum class ScaleAxis { rows, columns };

std::int64_t magnitude_parts(std::int64_t rows);

// Writes the largest absolute value of each column of weight (rows, columns) in parts of its rows:
// magnitudes (magnitude_parts(rows), columns). It is NaN if a number is not finite.
template <class T>
void column_magnitudes(Tensor<float, 2> magnitudes, Tensor<const T, 2> weight, Stream& stream);

// Writes the scales (columns) of a weight from the magnitudes (parts, columns) of any parts of its
// rows, such as those of several ranks. The order of the parts changes no bit.
void scales_from_magnitudes(Tensor<float, 1> scales, In<float, 2> magnitudes, Stream& stream);

// Writes the scale of each row of weight (rows, C): scales (rows).
template <class T>
void row_scales(Tensor<float, 1> scales, Tensor<const T, 2> weight, Stream& stream);

// Writes out (rows, C): the codes of weight (rows, C), or the values of these codes rounded to T.
// scales: (rows) or (C), see `axis`.
template <class T>
void fake_quantize_weight(Tensor<T, 2> out, In<T, 2> weight, In<float, 1> scales, ScaleAxis axis,
                          Quantized result, Stream& stream);

// Writes ranges (rows, 2): minimum and maximum of each row of x (rows, C) and 0. The maximum is
// infinite if a number of the row is not finite.
template <class T>
void row_ranges(Tensor<float, 2> ranges, Tensor<const T, 2> x, Stream& stream);

// Writes the quantizations (rows) of the rows of x (rows, C), and out (rows, C): code - zero of
// each number, or the values of the codes rounded to T. The range of a row is its own, or, if
// `ranges` (parts, rows, 2) has data, the union of those of several parts of the row (row_ranges),
// of which x is one. Any order of the parts has the same bits.
template <class T>
void fake_quantize_rows(Tensor<T, 2> out, Tensor<Quantization, 1> quantizations, In<T, 2> x,
                        In<float, 3> ranges, bool zero_points, Quantized result, Stream& stream);

// The results of a product from its sums: out (rows, C) = sums (rows, C, fp32) * the scale of the
// row * column_scales (C) + bias (C), rounded to T. row_quantizations (rows) without data: the rows
// are not quantized. A bias without data is not added. out may be the memory of sums if T is fp32.
template <class T>
void scaled_sums(Tensor<T, 2> out, In<float, 2> sums, In<Quantization, 1> row_quantizations,
                 In<float, 1> column_scales, In<T, 1> bias, Stream& stream);

// Sets the gradients d_x (rows, C) of those numbers of x (rows, C) to 0 whose codes were clamped.
// Without zero points there are none: the scale is that of the largest number.
template <class T>
void clip_gradient(Tensor<T, 2> d_x, In<T, 2> x, In<Quantization, 1> quantizations, Stream& stream);

}  // namespace llmc
