// The addition to the residual stream if no LayerNorm follows it on this rank. Every other residual
// addition is fused with the LayerNorm after it (layernorm.h), with the same rounding.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// out = residual + branch, rounded to T. All (rows, C); out may be either input.
template <class T>
void residual_add(Tensor<T, 2> out, In<T, 2> residual, In<T, 2> branch, Stream& stream);

}  // namespace llmc
