// The linear layer of a model. Weights of another dtype and low-rank adapters belong here.
//
// The layer is column-parallel or row-parallel (tensor_group.h) if the table splits the columns or
// the rows of its weight. The input of a column-parallel layer and the output of a row-parallel one
// are rows of the residual stream, of which a rank has `own`; its other side has all rows.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/nn/context.h"
#include "llmc/nn/parameter.h"
#include "llmc/nn/quantized_weight.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

template <class T>
class Linear {
 public:
  // The layer with the parameters NAME.weight (K, N) and NAME.bias (N). On this rank, K or N may be
  // smaller than in the whole model.
  Linear(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : weight_(table, name + ".weight", source),
        bias_(table, name + ".bias", source),
        quantized_(weight_, ScaleAxis::columns, splits_rows()) {}

  // Reserves what quantized passes need. The layer must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) { quantized_.reserve(plan); }

  // out = inp · weight + bias; out (rows, N), inp (rows, K).
  void forward(Tensor<T, 2> out, In<T, 2> inp, Context& context) const {
    Stream& stream = context.stream;
    if (!splits_rows()) {
      product(out, context.tensor.gather<T>(inp, out.shape[0], stream), bias_.vector(), context);
      return;
    }
    const Tensor<T, 2> partial = context.tensor.partial_sums(out, inp.shape[0]);
    const bool adds_bias = context.tensor.first();  // once in the sum over ranks
    // In a quantized pass, each rank scales its own partial sums: all ranks have the same scales.
    product(partial, inp, adds_bias ? bias_.vector() : Tensor<const T, 1>{}, context);
    context.tensor.reduce(out, partial, stream);
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ. Adds to the gradients of the parameters: to
  // that of a row-parallel bias only the sum of the rank's own rows. After a quantized forward
  // pass, weight and inp are the numbers that their codes stand for, and gradients pass straight
  // through the rounding.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Context& context) const {
    if (splits_rows()) {
      bias_gradient<T>(bias_.vector_gradient(), d_out, context.scratch, context.stream);
      const In<T, 2> values = input_values(inp, context);
      products_backward(d_inp, {}, context.tensor.gather<T>(d_out, inp.shape[0], context.stream),
                        values, context);
      clip(d_inp, inp, {inp.shape[0], 0, inp.shape[0], inp.shape[0]}, context);
      return;
    }
    const std::int64_t rows = d_out.shape[0];
    const In<T, 2> values =
        input_values(context.tensor.gather<T>(inp, rows, context.stream), context);
    const Tensor<T, 2> partial = context.tensor.partial_sums(d_inp, rows);
    products_backward(partial, bias_.vector_gradient(), d_out, values, context);
    context.tensor.reduce(d_inp, partial, context.stream);
    clip(d_inp, inp, context.tensor.rows_of_rank(rows), context);
  }

  const Parameter<T>& weight() const { return weight_; }
  const Parameter<T>& bias() const { return bias_; }

  // Number of floats in Context::scratch that backward() needs for this many rows of d_out.
  std::int64_t scratch_size(std::int64_t rows) const {
    return linear_backward_scratch(rows, bias_.spec().part.shape[0]);
  }

 private:
  bool splits_rows() const { return weight_.spec().part.split && !bias_.spec().part.split; }

  // out = inp · weight + bias, if that has data, on this rank.
  void product(Tensor<T, 2> out, In<T, 2> inp, In<T, 1> bias, Context& context) const {
    const QuantizedPass& pass = context.quantization.pass();
    if (!pass.weights) {
      linear_forward<T>(out, inp, weight_.matrix(), bias, context.gemm, context.stream);
      return;
    }
    quantized_.product(out, quantized_.quantized_input(inp, Quantized::codes, context), bias,
                       Transpose::no, pass.activations, context);
  }

  // The factors of the product in the forward pass.
  Tensor<const T, 2> input_values(In<T, 2> inp, Context& context) const {
    return quantized_.quantized_input(inp, Quantized::values, context);
  }
  Tensor<const T, 2> weight_values(Context& context) const {
    if (!context.quantization.pass().weights) return weight_.matrix();
    return quantized_.quantized(Quantized::values, context);
  }

  void products_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_bias, In<T, 2> d_out, In<T, 2> inp,
                         Context& context) const {
    linear_backward<T>(d_inp, weight_.matrix_gradient(), d_bias, d_out, inp, weight_values(context),
                       context.scratch, context.gemm, context.stream);
  }

  // No gradient passes to numbers whose codes were clamped. d_inp and inp have the rows `own`, and
  // input_values() has left the quantizations of all rows in their buffer.
  void clip(Tensor<T, 2> d_inp, In<T, 2> inp, const RankRows& own, Context& context) const {
    const QuantizedPass& pass = context.quantization.pass();
    if (!pass.activations || !pass.zero_points || d_inp.data == nullptr) return;
    clip_gradient<T>(d_inp, inp,
                     row_range(context.quantization.quantizations(own.all), own.first, own.own),
                     context.stream);
  }

  Parameter<T> weight_, bias_;
  QuantizedWeight<T> quantized_;
};

}  // namespace llmc
