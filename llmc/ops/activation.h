// Activation functions (activation_kind.h), element by element.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/activation_kind.h"

namespace llmc {

// out = f(inp), element by element. out and inp (rows, C); out may be inp.
template <class T>
void activation_forward(Tensor<T, 2> out, In<T, 2> inp, Activation f, Stream& stream);

// Writes d_inp = d_out * f'(inp). All (rows, C); d_inp may be d_out or inp. The derivative of relu
// at 0 is 0, as in PyTorch.
template <class T>
void activation_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Activation f,
                         Stream& stream);

}  // namespace llmc
