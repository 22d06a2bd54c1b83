// The linear layer of a model: its product (linear_product.h), divided among tensor ranks.
//
// The layer is column-parallel or row-parallel (tensor_group.h) if the table splits the columns or
// the rows of its weight. The input of a column-parallel layer and the output of a row-parallel one
// are rows of the residual stream, of which a rank has `own`; its other side has all rows.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/nn/context.h"
#include "llmc/nn/linear_product.h"
#include "llmc/nn/parameter.h"
#include "llmc/ops/bias_gradient.h"

namespace llmc {

template <class T>
class Linear {
 public:
  // The layer with the parameters NAME.weight (K, N) and NAME.bias (N). On this rank, K or N may be
  // smaller than in the whole model.
  Linear(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : product_(table, name, source) {}

  // Reserves what quantized passes need. The layer must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) { product_.reserve(plan); }

  // out = inp · weight + bias; out (rows, N), inp (rows, K).
  void forward(Tensor<T, 2> out, In<T, 2> inp, Context& context) const {
    Stream& stream = context.stream;
    if (!product_.splits_rows()) {
      const In<T, 2> all = context.tensor.gather<T>(inp, out.shape[0], stream);
      product_.forward(out, all, bias().vector(), context);
      return;
    }
    const Tensor<T, 2> partial = context.tensor.partial_sums(out, inp.shape[0]);
    const bool adds_bias = context.tensor.first();  // once in the sum over ranks
    // In a quantized pass, each rank scales its own partial sums: all ranks have the same scales.
    product_.forward(partial, inp, adds_bias ? bias().vector() : Tensor<const T, 1>{}, context);
    context.tensor.reduce(out, partial, stream);
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ, if it has data. Adds to the gradients of
  // the parameters: to that of a row-parallel bias only the sum of the rank's own rows. After a
  // quantized forward pass, weight and inp are the numbers that their codes stand for, and
  // gradients pass straight through the rounding.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Context& context) const {
    if (product_.splits_rows()) {
      bias_gradient<T>(bias().vector_gradient(), d_out, context.scratch, context.stream);
      const bool reads_input = product_.reads_input(context);
      if (d_inp.data == nullptr && !reads_input) return;
      const In<T, 2> factor = reads_input ? product_.factor(inp, context) : inp;
      product_.backward(d_inp, {}, context.tensor.gather<T>(d_out, inp.shape[0], context.stream),
                        factor, context);
      product_.finish_backward(d_inp, inp, {inp.shape[0], 0, inp.shape[0], inp.shape[0]}, context);
      return;
    }
    const std::int64_t rows = d_out.shape[0];
    In<T, 2> factor = inp;
    if (product_.reads_input(context)) {
      factor = product_.factor(context.tensor.gather<T>(inp, rows, context.stream), context);
    }
    Tensor<T, 2> partial = d_inp;
    if (d_inp.data != nullptr) partial = context.tensor.partial_sums(d_inp, rows);
    product_.backward(partial, bias().vector_gradient(), d_out, factor, context);
    if (d_inp.data != nullptr) context.tensor.reduce(d_inp, partial, context.stream);
    product_.finish_backward(d_inp, inp, context.tensor.rows_of_rank(rows), context);
  }

  // The product in inference, of a model on one rank.
  InvariantGemm<T> inference(In<T, 2> inp) const { return product_.inference(inp); }

  const Parameter<T>& weight() const { return product_.weight(); }
  const Parameter<T>& bias() const { return product_.bias(); }

  // Number of floats in Context::scratch that backward() needs for this many rows of d_out.
  std::int64_t scratch_size(std::int64_t rows) const { return product_.scratch_size(rows); }

 private:
  LinearProduct<T> product_;
};

}  // namespace llmc
