// Multiplication of the columns of activations by a vector, as the adapters IA3 do (Liu et al.,
// 2022).
#pragma once

#include <cstdint>

#include "llmc/device/device.h"

namespace llmc {

// out (rows, N) = inp (rows, N) with each column `first` + i multiplied by scale[i]; scale (N -
// first). The columns before `first` are copied. N and first are multiples of 8. out may be inp.
template <class T>
void channel_scale_forward(Tensor<T, 2> out, In<T, 2> inp, In<T, 1> scale, std::int64_t first,
                           Stream& stream);

// Floats of scratch that channel_scale_backward needs for d_out (rows, N).
std::int64_t channel_scale_backward_scratch(std::int64_t rows, std::int64_t N);

// Adds the sums over the rows of d_out · inp (rows, N) to d_scale (N - first), fp32; it may have no
// data (frozen). Writes d_inp (rows, N) = d_out times the factors of the forward pass, if it has
// data; d_inp may be d_out. scratch holds channel_scale_backward_scratch(rows, N) floats.
// Deterministic: the order of the sums depends only on rows and N.
template <class T>
void channel_scale_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_scale, In<T, 2> d_out,
                            In<T, 2> inp, In<T, 1> scale, std::int64_t first,
                            Tensor<float, 1> scratch, Stream& stream);

}  // namespace llmc
