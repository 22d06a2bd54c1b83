// The numbers that INT8 codes of a weight stand for.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/fake_quantize.h"

namespace llmc {

// out (rows, C) = codes (rows, C) times the scale of their row or column, rounded to T. scales
// (rows) or (C), fp32. C is a multiple of 8.
template <class T>
void dequantize(Tensor<T, 2> out, Tensor<const std::int8_t, 2> codes, In<float, 1> scales,
                ScaleAxis axis, Stream& stream);

}  // namespace llmc
