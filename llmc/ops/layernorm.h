// LayerNorm (Ba, Kiros and Hinton, 2016), plain and fused with the residual addition before it.
//
// Over each row x of C channels: z = (x - mean) * rstd, out = z * weight + bias, with the biased
// variance and rstd = 1 / sqrt(variance + eps).
//
// On a GPU, a row is read from memory once and stays in registers. Up to 1024 channels, one warp
// processes a row and its sums need no barrier; a whole block processes a wider row. In the host
// executor one thread processes a row (block_threads.h) and reads it again from the L1 cache. The
// variance is the mean of (x - mean)^2. E[x^2] - mean^2 would cancel if |mean| is large.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// Writes out (rows, C), mean (rows, fp32) and rstd (rows, fp32) from inp (rows, C), weight (C) and
// bias (C). C is a multiple of 8, at most 8192. out may be inp if inp is not needed afterwards.
template <class T>
void layernorm_forward(Tensor<T, 2> out, Tensor<float, 1> mean, Tensor<float, 1> rstd, In<T, 2> inp,
                       In<T, 1> weight, In<T, 1> bias, float eps, Stream& stream);

// residual_out = inp1 + inp2 (rounded to T), out = LayerNorm(residual_out); all (rows, C). The
// other arguments are as in layernorm_forward. residual_out may be inp1 or inp2.
template <class T>
void residual_layernorm_forward(Tensor<T, 2> residual_out, Tensor<T, 2> out, Tensor<float, 1> mean,
                                Tensor<float, 1> rstd, In<T, 2> inp1, In<T, 2> inp2,
                                In<T, 1> weight, In<T, 1> bias, float eps, Stream& stream);

// Writes out (rows, C) again from inp (rows, C) and the statistics of its forward pass, plain or
// fused (there inp is residual_out), with the same bits. out may be inp.
template <class T>
void layernorm_output(Tensor<T, 2> out, In<T, 2> inp, In<float, 1> mean, In<float, 1> rstd,
                      In<T, 1> weight, In<T, 1> bias, Stream& stream);

// Floats of scratch that layernorm_backward needs.
std::int64_t layernorm_backward_scratch(std::int64_t rows, std::int64_t C);

// Writes d_inp (rows, C): the gradient through LayerNorm plus d_residual (rows, C), the gradient
// that reaches inp through the residual connection. A d_residual without data counts as 0. Adds to
// d_weight (C) and d_bias (C), both fp32; each may have no data (frozen), which changes no bit of
// the other results. d_out is (rows, C); inp, mean and rstd are those of the forward pass. d_inp
// may be d_residual or d_out. scratch holds layernorm_backward_scratch(rows, C) floats.
// Deterministic: the order of every sum depends only on rows and C.
template <class T>
void layernorm_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_weight, Tensor<float, 1> d_bias,
                        In<T, 2> d_out, In<T, 2> inp, In<float, 1> mean, In<float, 1> rstd,
                        In<T, 1> weight, In<T, 2> d_residual, Tensor<float, 1> scratch,
                        Stream& stream);

}  // namespace llmc
