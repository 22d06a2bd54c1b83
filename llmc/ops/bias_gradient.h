// Gradient of a bias that was added to every row: the sum of the rows of d_out.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// Floats of scratch that bias_gradient needs for d_out (M, N).
std::int64_t bias_gradient_scratch(std::int64_t M, std::int64_t N);

// d_bias (N) fp32 += sum over m of d_out (M, N). N is a multiple of 8. scratch holds
// bias_gradient_scratch(M, N) floats. If d_bias has no data (frozen), nothing is computed.
// Deterministic: the order of the sum depends only on M and N.
template <class T>
void bias_gradient(Tensor<float, 1> d_bias, In<T, 2> d_out, Tensor<float, 1> scratch,
                   Stream& stream);

}  // namespace llmc
