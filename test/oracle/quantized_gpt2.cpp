#include "test/oracle/quantized_gpt2.h"

#include <cstddef>
#include <vector>

#include "test/oracle/attention.h"
#include "test/oracle/dropout.h"
#include "test/oracle/ops.h"

namespace llmc::oracle {

double QuantizedGpt2::loss_and_gradients(const Batch& batch, Tensors& d) const {
  const Index N = batch.B * batch.T, C = config_.C;
  const double eps = config_.norm_epsilon;
  std::vector<QuantizedBlock> blocks(config_.L);
  Vec x = embedding_forward(batch.tokens, p_.at("wte.weight"), p_.at("wpe.weight"), batch.B,
                            batch.T, C);
  for (Index l = 0; l < config_.L; ++l) x = forward(l, batch, std::move(x), blocks[l]);
  const LayerNorm ln_f = layernorm_forward(x, p_.at("ln_f.weight"), p_.at("ln_f.bias"), N, C, eps);
  const Vec& head_weight = p_.at(config_.head_name());
  const Vec logits = lm_head_forward(ln_f.out, head_weight, N, C, config_.V);
  const Classifier classified = classifier(logits, batch.targets, N, config_.V);

  const LmHeadGradients head =
      lm_head_backward(classified.d_logits, ln_f.out, head_weight, N, C, config_.V);
  add_to(d.at(config_.head_name()), head.wte);
  const LayerNormGradients norm = layernorm_backward(head.h, x, p_.at("ln_f.weight"), N, C, eps);
  add_to(d.at("ln_f.weight"), norm.weight);
  add_to(d.at("ln_f.bias"), norm.bias);
  Vec d_x = norm.x;
  for (Index l = config_.L; l-- > 0;) d_x = backward(l, batch, blocks[l], d_x, d);
  const EmbeddingGradients embedding =
      embedding_backward(d_x, batch.tokens, batch.B, batch.T, C, config_.V, config_.T_max);
  add_to(d.at("wte.weight"), embedding.wte);
  add_to(d.at("wpe.weight"), embedding.wpe);
  return classified.loss;
}

Vec QuantizedGpt2::product(Index layer, const std::string& name, ProductInput& input, const Vec& x,
                           Index N, Index K, Index columns) const {
  input = quantize_(block_name(layer, name), x, N, K);
  return linear_forward(input.values, weight(layer, name + ".weight"),
                        weight(layer, name + ".bias"), N, K, columns);
}

Vec QuantizedGpt2::product_backward(Index layer, const std::string& name, const ProductInput& input,
                                    const Vec& d_out, Index N, Index K, Index columns,
                                    Tensors& d) const {
  LinearGradients gradients =
      linear_backward(d_out, input.values, weight(layer, name + ".weight"), N, K, columns);
  add_to(d.at(block_name(layer, name + ".weight")), gradients.w);
  add_to(d.at(block_name(layer, name + ".bias")), gradients.b);
  for (std::size_t i = 0; i < gradients.x.size(); ++i) gradients.x[i] *= input.passes[i];
  return gradients.x;
}

Vec QuantizedGpt2::forward(Index l, const Batch& batch, Vec x, QuantizedBlock& block) const {
  const Index N = batch.B * batch.T, C = config_.C, inner = config_.inner_size();
  const double eps = config_.norm_epsilon;
  BlockActivations& a = block.a;
  a.input = std::move(x);
  a.ln_1 = layernorm_forward(a.input, weight(l, "ln_1.weight"), weight(l, "ln_1.bias"), N, C, eps);
  a.qkv = product(l, "attn.c_attn", block.c_attn, a.ln_1.out, N, C, 3 * C);
  a.attention =
      attention_forward(a.qkv, batch.B, batch.T, config_.NH, config_.HS(), batch.doc_start,
                        AttentionFactor{}, 0, config_.attention_scale(l));
  a.residual_mid = residual_forward(
      a.input, product(l, "attn.c_proj", block.attention_c_proj, a.attention.out, N, C, C));
  a.ln_2 = layernorm_forward(a.residual_mid, weight(l, "ln_2.weight"), weight(l, "ln_2.bias"), N, C,
                             eps);
  a.fc = product(l, "mlp.c_fc", block.c_fc, a.ln_2.out, N, C, inner);
  a.activated = activation_forward(config_.activation, a.fc);
  return residual_forward(a.residual_mid,
                          product(l, "mlp.c_proj", block.mlp_c_proj, a.activated, N, inner, C));
}

Vec QuantizedGpt2::backward(Index l, const Batch& batch, const QuantizedBlock& block,
                            const Vec& d_out, Tensors& d) const {
  const Index N = batch.B * batch.T, C = config_.C, inner = config_.inner_size();
  const double eps = config_.norm_epsilon;
  const BlockActivations& a = block.a;
  const auto add_norm = [&](const std::string& name, const LayerNormGradients& gradients) {
    add_to(d.at(block_name(l, name + ".weight")), gradients.weight);
    add_to(d.at(block_name(l, name + ".bias")), gradients.bias);
    return gradients.x;
  };
  const Vec d_activated =
      product_backward(l, "mlp.c_proj", block.mlp_c_proj, d_out, N, inner, C, d);
  const Vec d_ln_2 =
      product_backward(l, "mlp.c_fc", block.c_fc,
                       activation_backward(config_.activation, d_activated, a.fc), N, C, inner, d);
  const Vec d_mid =
      add_norm("ln_2", residual_layernorm_backward(d_ln_2, d_out, a.residual_mid,
                                                   weight(l, "ln_2.weight"), N, C, eps));
  const Vec d_attention =
      product_backward(l, "attn.c_proj", block.attention_c_proj, d_mid, N, C, C, d);
  const Vec d_qkv =
      attention_backward(d_attention, a.qkv, batch.B, batch.T, config_.NH, config_.HS(),
                         batch.doc_start, AttentionFactor{}, 0, config_.attention_scale(l));
  const Vec d_ln_1 = product_backward(l, "attn.c_attn", block.c_attn, d_qkv, N, C, 3 * C, d);
  return add_norm("ln_1", residual_layernorm_backward(d_ln_1, d_mid, a.input,
                                                      weight(l, "ln_1.weight"), N, C, eps));
}

}  // namespace llmc::oracle
