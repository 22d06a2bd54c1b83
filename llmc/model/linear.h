// The linear layer of a model. Weights of another dtype and low-rank adapters belong here.
//
// The layer is column-parallel or row-parallel (tensor_group.h) if the table splits the columns or
// the rows of its weight. The input of a column-parallel layer and the output of a row-parallel one
// are rows of the residual stream, of which a rank has `own`; its other side has all rows.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/model/context.h"
#include "llmc/model/parameter.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

template <class T>
class Linear {
 public:
  // The layer with the parameters NAME.weight (K, N) and NAME.bias (N). On this rank, K or N may be
  // smaller than in the whole model.
  Linear(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : weight_(table, name + ".weight", source), bias_(table, name + ".bias", source) {}

  // out = inp · weight + bias; out (rows, N), inp (rows, K).
  void forward(Tensor<T, 2> out, In<T, 2> inp, Context& context) const {
    Stream& stream = context.stream;
    if (!splits_rows()) {
      linear_forward<T>(out, context.tensor.gather<T>(inp, out.shape[0], stream), weight_.matrix(),
                        bias_.vector(), context.gemm, stream);
      return;
    }
    const Tensor<T, 2> partial = context.tensor.partial_sums(out, inp.shape[0]);
    const bool adds_bias = context.tensor.first();  // once in the sum over ranks
    linear_forward<T>(partial, inp, weight_.matrix(),
                      adds_bias ? bias_.vector() : Tensor<const T, 1>{}, context.gemm, stream);
    context.tensor.add_up(out, partial, stream);
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ. Adds to the gradients of the parameters: to
  // that of a row-parallel bias only the sum of the rank's own rows.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Context& context) const {
    if (splits_rows()) {
      bias_gradient<T>(bias_.vector_gradient(), d_out, context.scratch, context.stream);
      products_backward(d_inp, {}, context.tensor.gather<T>(d_out, inp.shape[0], context.stream),
                        inp, context);
      return;
    }
    const std::int64_t rows = d_out.shape[0];
    const In<T, 2> all_inp = context.tensor.gather<T>(inp, rows, context.stream);
    const Tensor<T, 2> partial = context.tensor.partial_sums(d_inp, rows);
    products_backward(partial, bias_.vector_gradient(), d_out, all_inp, context);
    context.tensor.add_up(d_inp, partial, context.stream);
  }

  const Parameter<T>& weight() const { return weight_; }
  const Parameter<T>& bias() const { return bias_; }

  // Number of floats in Context::scratch that backward() needs for this many rows of d_out.
  std::int64_t scratch_size(std::int64_t rows) const {
    return linear_backward_scratch(rows, bias_.spec().part.shape[0]);
  }

 private:
  bool splits_rows() const { return weight_.spec().part.split && !bias_.spec().part.split; }

  void products_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_bias, In<T, 2> d_out, In<T, 2> inp,
                         Context& context) const {
    linear_backward<T>(d_inp, weight_.matrix_gradient(), d_bias, d_out, inp, weight_.matrix(),
                       context.scratch, context.gemm, context.stream);
  }

  Parameter<T> weight_, bias_;
};

}  // namespace llmc
