// The LayerNorm layer, plain or fused with the residual addition before it.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/nn/context.h"
#include "llmc/nn/parameter.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/layernorm.h"

namespace llmc {

// Mean and reciprocal standard deviation of each row, as the LayerNorm computed them.
struct NormStatistics {
  Tensor<float, 1> mean, rstd;  // (own rows)
};

template <class T>
class Norm {
 public:
  // The layer with the parameters NAME.weight (C) and NAME.bias (C). `epsilon` is added to the
  // variance.
  Norm(const ParameterTable& table, const std::string& name, double epsilon,
       ParameterSource& source)
      : weight_(table, name + ".weight", source),
        bias_(table, name + ".bias", source),
        epsilon_(static_cast<float>(epsilon)) {}

  // out (rows, C) is the normalised inp (rows, C).
  void forward(Tensor<T, 2> out, const NormStatistics& statistics, In<T, 2> inp,
               Context& context) const {
    layernorm_forward<T>(out, statistics.mean, statistics.rstd, inp, weight_.vector(),
                         bias_.vector(), epsilon_, context.stream);
    context.outputs.rows("layernorm forward", weight_.spec().name, out, context.stream);
  }

  // sum (rows, C) = residual + branch, and out (rows, C) is the normalised sum.
  void forward_sum(Tensor<T, 2> sum, Tensor<T, 2> out, const NormStatistics& statistics,
                   In<T, 2> residual, In<T, 2> branch, Context& context) const {
    residual_layernorm_forward<T>(sum, out, statistics.mean, statistics.rstd, residual, branch,
                                  weight_.vector(), bias_.vector(), epsilon_, context.stream);
    context.outputs.rows("residual layernorm forward", weight_.spec().name, sum, context.stream);
    context.outputs.rows("residual layernorm forward", weight_.spec().name, out, context.stream);
  }

  // Writes out (rows, C) again, with the same bits, from inp (rows, C), or the sum of
  // forward_sum(), and the statistics.
  void output(Tensor<T, 2> out, In<T, 2> inp, const NormStatistics& statistics,
              Context& context) const {
    layernorm_output<T>(out, inp, statistics.mean, statistics.rstd, weight_.vector(),
                        bias_.vector(), context.stream);
    context.outputs.rows("layernorm output", weight_.spec().name, out, context.stream);
  }

  // Writes d_inp (rows, C): the gradient through the norm, plus d_residual if that has data.
  // d_residual is the gradient that reaches the norm's input around the norm; d_inp may be
  // d_residual. Adds to the gradients of the parameters.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, const NormStatistics& statistics,
                In<T, 2> d_residual, Context& context) const {
    layernorm_backward<T>(d_inp, weight_.vector_gradient(), bias_.vector_gradient(), d_out, inp,
                          statistics.mean, statistics.rstd, weight_.vector(), d_residual,
                          context.scratch, context.stream);
    const OutputReports& outputs = context.outputs;
    outputs.rows("layernorm backward", weight_.spec().name, d_inp, context.stream);
    outputs.sum("layernorm backward", weight_.spec().name, weight_.vector_gradient(),
                context.stream);
    outputs.sum("layernorm backward", bias_.spec().name, bias_.vector_gradient(), context.stream);
  }

  // Normalises the input of a product in inference.
  void fuse_into(InvariantGemm<T>& product) const {
    product.norm_weight = weight_.vector();
    product.norm_bias = bias_.vector();
    product.norm_epsilon = epsilon_;
  }

  const Parameter<T>& weight() const { return weight_; }
  const Parameter<T>& bias() const { return bias_; }

  // Number of floats in Context::scratch that backward() needs for this many rows.
  std::int64_t scratch_size(std::int64_t rows) const {
    return layernorm_backward_scratch(rows, weight_.spec().shape[0]);
  }

 private:
  Parameter<T> weight_, bias_;
  float epsilon_;
};

}  // namespace llmc
