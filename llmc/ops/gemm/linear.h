// The linear layer y = x·W + b, with W stored (in, out) as Hugging Face's GPT-2 does.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/gemm/matmul.h"

namespace llmc {

// out (M, N) = inp (M, K) · weight (K, N) + bias (N). A bias without data is not added.
template <class T>
void linear_forward(Tensor<T, 2> out, In<T, 2> inp, In<T, 2> weight, In<T, 1> bias, Gemm& gemm,
                    Stream& stream) {
  const ProfileScope scope("linear forward", stream);
  if (bias.data != nullptr) check_shape("bias", bias, {out.shape[1]});
  matmul(out, inp, Transpose::no, weight, Transpose::no, 0.0f, bias.data, gemm, stream);
}

// The gradient of a weight, fp32, to which a product adds: sum = beta * sum + product. Without data
// the weight is frozen.
struct WeightGradient {
  Tensor<float, 2> sum;
  float beta = 1;  // 0: the memory has nothing yet

  WeightGradient(Tensor<float, 2> tensor = {}, float factor = 1) : sum(tensor), beta(factor) {}
};

// Floats of scratch that linear_backward needs for d_out (M, N).
inline std::int64_t linear_backward_scratch(std::int64_t M, std::int64_t N) {
  return bias_gradient_scratch(M, N);
}

// Writes d_inp (M, K) = d_out (M, N) · weightᵀ. Adds inpᵀ · d_out to d_weight (K, N), and the
// column sums of d_out to d_bias (N), fp32. d_inp, d_weight and d_bias may have no data (frozen, or
// no layer below); that part is skipped. d_inp may be the memory of inp, which is not read after
// the gradient of the weight is complete.
template <class T>
void linear_backward(Tensor<T, 2> d_inp, const WeightGradient& d_weight, Tensor<float, 1> d_bias,
                     In<T, 2> d_out, In<T, 2> inp, In<T, 2> weight, Tensor<float, 1> scratch,
                     Gemm& gemm, Stream& stream) {
  constexpr const T* kNoBias = nullptr;
  bias_gradient<T>(d_bias, d_out, scratch, stream);
  if (d_weight.sum.data != nullptr) {
    const ProfileScope scope("linear weight gradient", stream);
    matmul(d_weight.sum, inp, Transpose::yes, d_out, Transpose::no, d_weight.beta, kNoBias, gemm,
           stream);
  }
  if (d_inp.data != nullptr) {
    const ProfileScope scope("linear input gradient", stream);
    matmul(d_inp, d_out, Transpose::no, weight, Transpose::yes, 0.0f, kNoBias, gemm, stream);
  }
}

}  // namespace llmc
