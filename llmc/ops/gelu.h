// GELU in its tanh form (Hendrycks and Gimpel, 2016), as in GPT-2.
//
//   gelu(x) = x/2 (1 + tanh u),  u(x) = sqrt(2/pi) (x + 0.044715 x^3)
//
// Computed as x * s with s = 1 / (1 + exp(-2u)). This is equal, since (1 + tanh u) / 2 is the
// logistic function of 2u. It needs one exponential and keeps its relative accuracy for u far below
// zero, where 1 + tanh u would cancel.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// out = gelu(inp), element by element. out and inp (rows, C); out may be inp.
template <class T>
void gelu_forward(Tensor<T, 2> out, In<T, 2> inp, Stream& stream);

// Writes d_inp = d_out * gelu'(inp). All (rows, C); d_inp may be d_out or inp.
template <class T>
void gelu_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Stream& stream);

}  // namespace llmc
