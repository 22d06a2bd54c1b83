// GPT-2 with quantized products in double precision: the definition of quantization-aware training
// and of its straight-through gradients.
//
// The forward pass multiplies the numbers that codes stand for. The backward pass differentiates
// that pass, as if rounding to a code were the identity; where a code was clamped, its derivative
// is 0. The logits multiply hidden states that are not quantized by a quantized head, which is the
// token embeddings that the sum of the embeddings uses too, or a matrix of its own. Nothing else is
// quantized.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "test/oracle/gpt2.h"
#include "test/oracle/vec.h"

namespace llmc::oracle {

// The input of a product: the numbers that are multiplied, and the derivative of each with respect
// to the number that was quantized, 1 or 0.
struct ProductInput {
  Vec values, passes;
};

// Quantizes the input x (rows, columns) of the layer `name`, such as "h.0.mlp.c_fc".
using QuantizeInput =
    std::function<ProductInput(const std::string& name, const Vec& x, Index rows, Index columns)>;

struct QuantizedBlock {
  BlockActivations a;
  ProductInput c_attn, attention_c_proj, c_fc, mlp_c_proj;
};

class QuantizedGpt2 {
 public:
  // `parameters`: matrices, token embeddings and head are the numbers that their codes stand for.
  QuantizedGpt2(const Config& config, Tensors parameters, QuantizeInput quantize)
      : config_(config), p_(std::move(parameters)), quantize_(std::move(quantize)) {}

  // The mean loss of the batch. Adds to `d` its gradients with respect to all parameters, of
  // matrices straight through their rounding.
  double loss_and_gradients(const Batch& batch, Tensors& d) const;

 private:
  const Vec& weight(Index layer, const std::string& name) const {
    return p_.at(block_name(layer, name));
  }

  // Quantizes x (N, K) to `input` and returns the layer's result (N, columns).
  Vec product(Index layer, const std::string& name, ProductInput& input, const Vec& x, Index N,
              Index K, Index columns) const;

  // Returns the gradient of x from that of the layer's result; adds to those of its parameters.
  Vec product_backward(Index layer, const std::string& name, const ProductInput& input,
                       const Vec& d_out, Index N, Index K, Index columns, Tensors& d) const;

  Vec forward(Index l, const Batch& batch, Vec x, QuantizedBlock& block) const;

  Vec backward(Index l, const Batch& batch, const QuantizedBlock& block, const Vec& d_out,
               Tensors& d) const;

  Config config_;
  Tensors p_;
  QuantizeInput quantize_;
};

}  // namespace llmc::oracle
