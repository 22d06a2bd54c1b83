// The product of a linear layer on one rank: out = inp · weight + bias, its gradients, and its form
// for inference. Everything that changes the numbers that a layer multiplies belongs here:
// quantized passes and INT8 weights. Linear (linear.h) divides the product among tensor ranks, and
// adds adapters.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/nn/context.h"
#include "llmc/nn/parameter.h"
#include "llmc/nn/quantized_weight.h"
#include "llmc/nn/weight_values.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

// The product of inp (rows, K) and a weight in inference, whose numbers are floats or codes.
template <class T>
InvariantGemm<T> inference_product(In<T, 2> inp, const Parameter<T>& weight) {
  InvariantGemm<T> product;
  product.inp = inp;
  if (weight.has_codes()) {
    product.codes = weight.codes();
  } else {
    product.weight = weight.matrix();
  }
  return product;
}

template <class T>
class LinearProduct {
 public:
  // The product of the parameters NAME.weight (K, N) and NAME.bias (N).
  LinearProduct(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : weight_(table, name + ".weight", source),
        bias_(table, name + ".bias", source),
        quantized_(weight_, ScaleAxis::columns, splits_rows()) {}

  // Reserves what quantized passes need. The object must not move afterwards.
  void reserve(MemoryPlan& plan) { quantized_.reserve(plan); }

  // Whether tensor ranks have parts of the rows of the weight, and of the columns of the input.
  bool splits_rows() const { return weight_.spec().part.split && !bias_.spec().part.split; }

  const Parameter<T>& weight() const { return weight_; }
  const Parameter<T>& bias() const { return bias_; }

  // out (rows, N) = inp (rows, K) · weight + bias, if that has data.
  void forward(Tensor<T, 2> out, In<T, 2> inp, In<T, 1> bias, Context& context) const {
    const QuantizedPass& pass = context.quantization.pass();
    if (!pass.weights) {
      linear_forward<T>(out, inp, weight_values(weight_, context), bias, context.gemm,
                        context.stream);
      return;
    }
    quantized_.product(out, quantized_.quantized_input(inp, Quantized::codes, context), bias,
                       Transpose::no, pass.activations, context);
  }

  // The input as forward() multiplied it: inp (rows, K), or the numbers that its codes stand for.
  Tensor<const T, 2> factor(In<T, 2> inp, Context& context) const {
    return quantized_.quantized_input(inp, Quantized::values, context);
  }

  // Whether backward() reads the factor of the input: not if the weight is frozen. A quantized pass
  // needs it in any case, for finish_backward().
  bool reads_input(Context& context) const {
    return weight_.has_gradient() || context.quantization.pass().weights;
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ, if it has data, and adds to the gradients
  // of the weight and, if d_bias has data, of the bias. `factor` is that of the input.
  void backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_bias, In<T, 2> d_out, In<T, 2> factor,
                Context& context) const {
    linear_backward<T>(d_inp, weight_.product_gradient(), d_bias, d_out, factor,
                       weight_factor(context), context.scratch, context.gemm, context.stream);
  }

  // Completes d_inp, when it is a sum over tensor ranks. d_inp and inp have the rows `own`. No
  // gradient passes to numbers whose codes were clamped; factor() has left the quantizations of all
  // rows in their buffer.
  void finish_backward(Tensor<T, 2> d_inp, In<T, 2> inp, const RankRows& own,
                       Context& context) const {
    const QuantizedPass& pass = context.quantization.pass();
    if (!pass.activations || !pass.zero_points || d_inp.data == nullptr) return;
    clip_gradient<T>(d_inp, inp,
                     row_range(context.quantization.quantizations(own.all), own.first, own.own),
                     context.stream);
  }

  // Number of floats in Context::scratch that the product needs for this many rows of d_out.
  std::int64_t scratch_size(std::int64_t rows) const {
    return linear_backward_scratch(rows, bias_.spec().part.shape[0]);
  }

  // The product in inference. The caller adds what belongs to the pass: the kind of rows, how INT8
  // weights read them, a norm before it.
  InvariantGemm<T> inference(In<T, 2> inp) const {
    InvariantGemm<T> product = inference_product<T>(inp, weight_);
    product.bias = bias_.vector();
    return product;
  }

 private:
  Tensor<const T, 2> weight_factor(Context& context) const {
    if (!context.quantization.pass().weights) return weight_values(weight_, context);
    return quantized_.quantized(Quantized::values, context);
  }

  Parameter<T> weight_, bias_;
  QuantizedWeight<T> quantized_;
};

}  // namespace llmc
