// The linear layer of a model: its product (linear_product.h) and its adapter
// (ops/adapter_shape.h), divided among tensor ranks.
//
// The layer is column-parallel or row-parallel (tensor_group.h) if tensor ranks would split the
// columns or the rows of its weight; one rank is the case of one part. The input of a
// column-parallel layer and the output of a row-parallel one are rows of the residual stream, of
// which a rank has `own`; its other side has all rows.
//
// LoRA on tensor ranks: a column-parallel layer has all of A and a part of B, a row-parallel layer
// a part of A and all of B. In the former, the gradient of h = x · Aᵀ is added up over the ranks
// before that of A is formed; the input's gradient gets each rank's part, because it is a sum
// itself. In the latter, h is added up before B multiplies it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "llmc/nn/linear_product.h"
#include "llmc/nn/low_rank_adapter.h"
#include "llmc/nn/parameter.h"
#include "llmc/nn/pass.h"
#include "llmc/ops/adapter_shape.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/channel_scale.h"

namespace llmc {

// The values of an adapter that its backward pass reads.
template <class T>
struct AdapterActivations {
  Tensor<T, 2> hidden;    // LoRA: (rows, R) of h; the own rows in a row-parallel layer
  Tensor<T, 2> unscaled;  // IA3 of outputs: (rows, N) of the product, before its columns are scaled

  // The same memory for a batch: with its number of rows, and R of the layer.
  AdapterActivations first(std::int64_t rows) const {
    return {first_rows(hidden, rows), first_rows(unscaled, rows)};
  }
};

template <class T>
class Linear {
 public:
  // The layer with the parameters NAME.weight (K, N) and NAME.bias (N), and the adapter that
  // `adapters` has for it. On this rank, K or N may be smaller than in the whole model.
  Linear(const ParameterTable& table, const std::string& name, const AdapterShape& adapters,
         ParameterSource& source)
      : product_(table, name, source), fixes_query_(adapters.fixes_query) {
    for (const LayerAdapter& adapter : adapters.layers) {
      if (adapter.layer != name) continue;
      if (adapters.kind == AdapterKind::ia3) {
        scale_.emplace(table, name + ".ia3_l", source);
      } else {
        const std::int64_t site = &adapter - adapters.layers.data();
        lora_.emplace(table, name, adapter.scale, site, source);
      }
    }
  }

  // Reserves what quantized passes need. The layer must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) { product_.reserve(plan); }

  // out = inp · weight + bias, and what the adapter adds; out (rows, N), inp (rows, K). `saved`
  // keeps what backward() reads of the adapter.
  void forward(Tensor<T, 2> out, In<T, 2> inp, const AdapterActivations<T>& saved,
               const Pass& pass) const {
    is_row_parallel() ? forward_rows(out, inp, saved, pass)
                      : forward_columns(out, inp, saved, pass);
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ, and what the adapter adds, if it has data.
  // Adds to the gradients of the parameters: to that of a row-parallel bias only the sum of the
  // rank's own rows. After a quantized forward pass, weight and inp are the numbers that their
  // codes stand for, and gradients pass straight through the rounding.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp,
                const AdapterActivations<T>& saved, const Pass& pass) const {
    is_row_parallel() ? backward_rows(d_inp, d_out, inp, saved, pass)
                      : backward_columns(d_inp, d_out, inp, saved, pass);
  }

  // The product in inference, of a model on one rank.
  InvariantGemm<T> inference(In<T, 2> inp) const { return product_.inference(inp); }

  const Parameter<T>& weight() const { return product_.weight(); }
  const Parameter<T>& bias() const { return product_.bias(); }

  // Number of floats in Context::scratch that backward() needs for this many rows of d_out.
  std::int64_t scratch_size(std::int64_t rows) const {
    const std::int64_t product = product_.scratch_size(rows);
    if (!scale_) return product;
    const std::int64_t K = weight().spec().part.shape[0];
    return std::max(product, channel_scale_backward_scratch(rows, K));
  }

 private:
  bool is_row_parallel() const { return weight().spec().axes.rows.front().split; }

  // ---- column-parallel: a rank has all inputs and some outputs ----

  void forward_columns(Tensor<T, 2> out, In<T, 2> inp, const AdapterActivations<T>& saved,
                       const Pass& pass) const {
    Context& context = pass.context;
    const In<T, 2> all = context.tensor.gather<T>(inp, out.shape[0], context.stream);
    product_.forward(scale_ ? saved.unscaled : out, all, bias().vector(), context);
    report_rows("linear forward", scale_ ? saved.unscaled : out, context);
    if (scale_) scale_forward(out, saved.unscaled, context);
    if (!lora_) return;
    const Tensor<T, 2> hidden = of_rank(saved.hidden);
    lora_->project(hidden, all, 0, pass);
    lora_->add_output(out, hidden, pass);
  }

  void backward_columns(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp,
                        const AdapterActivations<T>& saved, const Pass& pass) const {
    Context& context = pass.context;
    Stream& stream = context.stream;
    const std::int64_t rows = d_out.shape[0];
    In<T, 2> d_product = d_out;
    if (scale_) {
      const Tensor<T, 2> scaled = context.adapters.inputs<T>(rows, d_out.shape[1]);
      scale_backward(scaled, d_out, saved.unscaled, context);
      d_product = scaled;
    }
    In<T, 2> factor = inp;
    if (product_.reads_input(context)) {
      factor = product_.factor(context.tensor.gather<T>(inp, rows, stream), context);
    }
    const bool has_input = d_inp.data != nullptr;
    Tensor<T, 2> partial = d_inp;
    if (has_input) partial = context.tensor.partial_sums(d_inp, rows);
    product_.backward(partial, bias().vector_gradient(), d_product, factor, context);
    report_backward(partial, bias().vector_gradient(), context);
    if (lora_) {
      const Tensor<T, 2> d_hidden = context.adapters.hidden<T>(rows, lora_->rank());
      lora_->project_gradient(d_hidden, d_out, pass);
      lora_->add_gradient_of_b(of_rank(saved.hidden), d_out, pass);
      if (has_input) lora_->add_input_gradient(partial, d_hidden, 0, pass);
    }
    if (has_input) {
      context.tensor.reduce(d_inp, partial, stream);
      report_sum_over_ranks(d_inp, context);
    }
    if (lora_) {
      const Tensor<T, 2> d_hidden = summed_hidden(rows, pass);
      lora_->add_gradient_of_a(d_hidden, inp, pass.rows.first, pass);
    }
    product_.finish_backward(d_inp, inp, pass.rows, context);
  }

  // The sum over ranks of the gradients of h, of the rows that this rank has of the input.
  Tensor<T, 2> summed_hidden(std::int64_t rows, const Pass& pass) const {
    Context& context = pass.context;
    const std::int64_t R = lora_->rank();
    const Tensor<T, 2> all = context.adapters.hidden<T>(rows, R);
    const bool is_spread = context.tensor.spreads_rows();
    const Tensor<T, 2> own = is_spread ? context.adapters.own_hidden<T>(pass.rows.own, R) : all;
    context.tensor.reduce(own, all, context.stream);
    return own;
  }

  // ---- row-parallel: a rank has some inputs, and sums of all outputs ----

  void forward_rows(Tensor<T, 2> out, In<T, 2> inp, const AdapterActivations<T>& saved,
                    const Pass& pass) const {
    Context& context = pass.context;
    Stream& stream = context.stream;
    const std::int64_t rows = inp.shape[0];
    In<T, 2> factor = inp;
    if (scale_) {
      const Tensor<T, 2> scaled = context.adapters.inputs<T>(rows, inp.shape[1]);
      scale_forward(scaled, inp, context);
      factor = scaled;
    }
    const Tensor<T, 2> partial = context.tensor.partial_sums(out, rows);
    const bool adds_bias = context.tensor.first();  // once in the sum over ranks
    // In a quantized pass, each rank scales its own partial sums: all ranks have the same scales.
    product_.forward(partial, factor, adds_bias ? bias().vector() : Tensor<const T, 1>{}, context);
    report_rows("linear forward", partial, context);
    context.tensor.reduce(out, partial, stream);
    report_sum_over_ranks(out, context);
    if (!lora_) return;
    const Tensor<T, 2> hidden = of_rank(saved.hidden);
    const bool is_spread = context.tensor.spreads_rows();
    const Tensor<T, 2> all = is_spread ? context.adapters.hidden<T>(rows, lora_->rank()) : hidden;
    lora_->project(all, inp, 0, pass);
    context.tensor.reduce(hidden, all, stream);
    lora_->add_output(out, hidden, pass);
  }

  void backward_rows(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp,
                     const AdapterActivations<T>& saved, const Pass& pass) const {
    Context& context = pass.context;
    const std::int64_t rows = inp.shape[0];
    bias_gradient<T>(bias().vector_gradient(), d_out, context.scratch, context.stream);
    context.outputs.sum("bias gradient", bias().spec().name, bias().vector_gradient(),
                        context.stream);
    if (lora_) lora_->add_gradient_of_b(of_rank(saved.hidden), d_out, pass);
    // The vector's gradient needs that of the scaled input.
    Tensor<T, 2> d_factor = d_inp;
    if (scale_ && d_inp.data == nullptr) d_factor = context.adapters.inputs<T>(rows, inp.shape[1]);
    const bool reads_input = product_.reads_input(context);
    if (d_factor.data == nullptr && !reads_input && !lora_) return;
    const In<T, 2> factor = reads_input ? product_.factor(inp, context) : inp;
    const In<T, 2> all = context.tensor.gather<T>(d_out, rows, context.stream);
    product_.backward(d_factor, {}, all, factor, context);
    report_backward(d_factor, {}, context);
    if (scale_) scale_backward(d_factor, d_factor, inp, context);
    if (lora_) {
      const Tensor<T, 2> d_hidden = context.adapters.hidden<T>(rows, lora_->rank());
      lora_->project_gradient(d_hidden, all, pass);
      lora_->add_gradient_of_a(d_hidden, inp, 0, pass);
      if (d_inp.data != nullptr) lora_->add_input_gradient(d_inp, d_hidden, 0, pass);
    }
    product_.finish_backward(d_inp, inp, {rows, 0, rows, rows}, context);
  }

  // ---- adapters ----

  // `hidden` with the rank of this layer, which may be lower than that of others.
  Tensor<T, 2> of_rank(const Tensor<T, 2>& hidden) const {
    return {hidden.data, {hidden.shape[0], lora_->rank()}};
  }

  // The columns before the first one that the vector scales.
  std::int64_t first_scaled(std::int64_t columns) const {
    return fixes_query_ && !is_row_parallel() ? columns / 3 : 0;
  }
  void scale_forward(Tensor<T, 2> out, In<T, 2> inp, Context& context) const {
    channel_scale_forward<T>(out, inp, scale_->vector(), first_scaled(inp.shape[1]),
                             context.stream);
    context.outputs.rows("channel scale", scale_->spec().name, out, context.stream);
  }
  void scale_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Context& context) const {
    channel_scale_backward<T>(d_inp, scale_->vector_gradient(), d_out, inp, scale_->vector(),
                              first_scaled(inp.shape[1]), context.scratch, context.stream);
    context.outputs.rows("channel scale gradient", scale_->spec().name, d_inp, context.stream);
    context.outputs.sum("channel scale gradient", scale_->spec().name, scale_->vector_gradient(),
                        context.stream);
  }

  // ---- reports to the observer of outputs ----

  void report_rows(const char* operation, const Tensor<T, 2>& rows, Context& context) const {
    context.outputs.rows(operation, weight().spec().name, rows, context.stream);
  }
  void report_sum_over_ranks(const Tensor<T, 2>& sum, Context& context) const {
    if (context.tensor.ranks() > 1) report_rows("sum over tensor ranks", sum, context);
  }
  void report_backward(const Tensor<T, 2>& d_inp, const Tensor<float, 1>& d_bias,
                       Context& context) const {
    const OutputReports& outputs = context.outputs;
    outputs.sum("bias gradient", bias().spec().name, d_bias, context.stream);
    outputs.sum("linear weight gradient", weight().spec().name, weight().matrix_gradient(),
                context.stream);
    report_rows("linear input gradient", d_inp, context);
  }

  LinearProduct<T> product_;
  bool fixes_query_;
  std::optional<LowRankAdapter<T>> lora_;
  std::optional<Parameter<T>> scale_;  // of IA3
};

}  // namespace llmc
