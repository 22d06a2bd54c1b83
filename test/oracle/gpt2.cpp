#include "test/oracle/gpt2.h"

#include <cmath>
#include <cstddef>

namespace llmc::oracle {

Index element_count(const Shape& shape) {
  Index n = 1;
  for (const Index d : shape) n *= d;
  return n;
}

double Config::attention_scale(Index layer) const {
  const double by_size = scale_attention ? 1 / std::sqrt(static_cast<double>(HS())) : 1;
  return scale_attention_by_layer ? by_size / static_cast<double>(layer + 1) : by_size;
}

std::vector<NamedShape> parameter_shapes(const Config& config) {
  const Index C = config.C, inner = config.inner_size();
  std::vector<NamedShape> shapes = {{"wte.weight", {config.V, C}},
                                    {"wpe.weight", {config.T_max, C}}};
  const auto affine = [&](const std::string& name, Shape weight) {
    shapes.push_back({name + ".weight", weight});
    shapes.push_back({name + ".bias", {weight.back()}});
  };
  for (Index l = 0; l < config.L; ++l) {
    affine(block_name(l, "ln_1"), {C});
    affine(block_name(l, "attn.c_attn"), {C, 3 * C});
    affine(block_name(l, "attn.c_proj"), {C, C});
    affine(block_name(l, "ln_2"), {C});
    affine(block_name(l, "mlp.c_fc"), {C, inner});
    affine(block_name(l, "mlp.c_proj"), {inner, C});
  }
  affine("ln_f", {C});
  if (!config.tied_head) shapes.push_back({config.head_name(), {config.V, C}});
  return shapes;
}

Tensors zeros_like_parameters(const Config& config) {
  Tensors zeros;
  for (const NamedShape& p : parameter_shapes(config)) zeros[p.name] = Vec(element_count(p.shape));
  return zeros;
}

namespace {

// The sites of dropout: 0 is the embedding. In layer l, 3l + 1 is attention; 3l + 2 and 3l + 3 are
// what the attention and the MLP add to the residual stream.
AttentionFactor attention_factor(const Dropout& dropout, Index layer) {
  if (dropout.attention == 0) return {};
  return [&dropout, layer](Index b, Index h, Index i, Index j) {
    return dropout.factor(dropout.attention, 3 * layer + 1, b, i, j, h);
  };
}

// Applies dropout to x (B, T, C): what a block's attention (branch 2) or MLP (branch 3) adds to the
// residual stream, or its gradient.
Vec branch_with_dropout(Vec x, const Dropout& dropout, Index layer, Index branch,
                        const Batch& batch, Index C) {
  apply_dropout(x, dropout, dropout.residual, 3 * layer + branch, batch.B, batch.T, C);
  return x;
}

// Computes one block, stores what backward needs in `a`, and returns the residual stream.
Vec block_forward(const Config& config, const Tensors& p, Index layer, const Batch& batch,
                  BlockActivations& a, const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  const Index C = config.C, inner = config.inner_size();
  const double eps = config.norm_epsilon, scale = config.attention_scale(layer);
  const auto w = [&](const char* name) -> const Vec& { return p.at(block_name(layer, name)); };
  a.ln_1 = layernorm_forward(a.input, w("ln_1.weight"), w("ln_1.bias"), N, C, eps);
  a.qkv = linear_forward(a.ln_1.out, w("attn.c_attn.weight"), w("attn.c_attn.bias"), N, C, 3 * C);
  a.attention = attention_forward(a.qkv, batch.B, batch.T, config.NH, config.HS(), batch.doc_start,
                                  attention_factor(dropout, layer), 0, scale);
  const Vec proj =
      linear_forward(a.attention.out, w("attn.c_proj.weight"), w("attn.c_proj.bias"), N, C, C);
  a.residual_mid =
      residual_forward(a.input, branch_with_dropout(proj, dropout, layer, 2, batch, C));
  a.ln_2 = layernorm_forward(a.residual_mid, w("ln_2.weight"), w("ln_2.bias"), N, C, eps);
  a.fc = linear_forward(a.ln_2.out, w("mlp.c_fc.weight"), w("mlp.c_fc.bias"), N, C, inner);
  a.activated = activation_forward(config.activation, a.fc);
  const Vec mlp =
      linear_forward(a.activated, w("mlp.c_proj.weight"), w("mlp.c_proj.bias"), N, inner, C);
  return residual_forward(a.residual_mid, branch_with_dropout(mlp, dropout, layer, 3, batch, C));
}

}  // namespace

Activations forward(const Config& config, const Tensors& p, const Batch& batch,
                    const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  Activations a;
  Vec x = embedding_forward(batch.tokens, p.at("wte.weight"), p.at("wpe.weight"), batch.B, batch.T,
                            config.C);
  apply_dropout(x, dropout, dropout.embedding, 0, batch.B, batch.T, config.C);
  a.blocks.resize(config.L);
  for (Index l = 0; l < config.L; ++l) {
    a.blocks[l].input = std::move(x);
    x = block_forward(config, p, l, batch, a.blocks[l], dropout);
  }
  a.final_residual = std::move(x);
  a.ln_f = layernorm_forward(a.final_residual, p.at("ln_f.weight"), p.at("ln_f.bias"), N, config.C,
                             config.norm_epsilon);
  a.logits = lm_head_forward(a.ln_f.out, p.at(config.head_name()), N, config.C, config.V);
  if (!batch.targets.empty()) a.classifier = classifier(a.logits, batch.targets, N, config.V);
  return a;
}

namespace {

// Takes d_out (B, T, C), the gradient of the block's output; adds the block's parameter gradients
// to `d`; returns the gradient of the block's input.
Vec block_backward(const Config& config, const Tensors& p, Index layer, const Batch& batch,
                   const BlockActivations& a, const Vec& d_out, Tensors& d,
                   const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  const Index C = config.C, inner = config.inner_size();
  const double eps = config.norm_epsilon, scale = config.attention_scale(layer);
  const auto w = [&](const char* name) -> const Vec& { return p.at(block_name(layer, name)); };
  const auto add_gradients = [&](const std::string& name, const Vec& weight, const Vec& bias) {
    add_to(d.at(block_name(layer, name + ".weight")), weight);
    add_to(d.at(block_name(layer, name + ".bias")), bias);
  };
  const LinearGradients proj =
      linear_backward(branch_with_dropout(d_out, dropout, layer, 3, batch, C), a.activated,
                      w("mlp.c_proj.weight"), N, inner, C);
  add_gradients("mlp.c_proj", proj.w, proj.b);
  const LinearGradients fc = linear_backward(activation_backward(config.activation, proj.x, a.fc),
                                             a.ln_2.out, w("mlp.c_fc.weight"), N, C, inner);
  add_gradients("mlp.c_fc", fc.w, fc.b);
  const LayerNormGradients ln_2 =
      residual_layernorm_backward(fc.x, d_out, a.residual_mid, w("ln_2.weight"), N, C, eps);
  add_gradients("ln_2", ln_2.weight, ln_2.bias);

  const LinearGradients attn_proj =
      linear_backward(branch_with_dropout(ln_2.x, dropout, layer, 2, batch, C), a.attention.out,
                      w("attn.c_proj.weight"), N, C, C);
  add_gradients("attn.c_proj", attn_proj.w, attn_proj.b);
  const Vec d_qkv = attention_backward(attn_proj.x, a.qkv, batch.B, batch.T, config.NH, config.HS(),
                                       batch.doc_start, attention_factor(dropout, layer), 0, scale);
  const LinearGradients attn_qkv =
      linear_backward(d_qkv, a.ln_1.out, w("attn.c_attn.weight"), N, C, 3 * C);
  add_gradients("attn.c_attn", attn_qkv.w, attn_qkv.b);
  const LayerNormGradients ln_1 =
      residual_layernorm_backward(attn_qkv.x, ln_2.x, a.input, w("ln_1.weight"), N, C, eps);
  add_gradients("ln_1", ln_1.weight, ln_1.bias);
  return ln_1.x;
}

}  // namespace

Tensors backward(const Config& config, const Tensors& p, const Batch& batch, const Activations& a,
                 const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  Tensors d = zeros_like_parameters(config);
  const LmHeadGradients head = lm_head_backward(a.classifier.d_logits, a.ln_f.out,
                                                p.at(config.head_name()), N, config.C, config.V);
  add_to(d.at(config.head_name()), head.wte);
  const LayerNormGradients ln_f = layernorm_backward(head.h, a.final_residual, p.at("ln_f.weight"),
                                                     N, config.C, config.norm_epsilon);
  add_to(d.at("ln_f.weight"), ln_f.weight);
  add_to(d.at("ln_f.bias"), ln_f.bias);
  Vec d_x = ln_f.x;
  for (Index l = config.L; l-- > 0;) {
    d_x = block_backward(config, p, l, batch, a.blocks[l], d_x, d, dropout);
  }
  apply_dropout(d_x, dropout, dropout.embedding, 0, batch.B, batch.T, config.C);
  const EmbeddingGradients embedding =
      embedding_backward(d_x, batch.tokens, batch.B, batch.T, config.C, config.V, config.T_max);
  add_to(d.at("wte.weight"), embedding.wte);
  add_to(d.at("wpe.weight"), embedding.wpe);
  return d;
}

StepResult Trainer::step(const std::vector<Batch>& micro_batches) {
  StepResult result;
  Tensors gradients = zeros_like_parameters(config_);
  const double fraction = 1.0 / static_cast<double>(micro_batches.size());
  for (const Batch& batch : micro_batches) {
    const Activations a = forward(config_, parameters_, batch);
    result.loss += fraction * a.classifier.loss;
    for (const auto& [name, gradient] : backward(config_, parameters_, batch, a)) {
      Vec& sum = gradients.at(name);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += fraction * gradient[i];
    }
  }
  result.grad_norm = norm_of(gradients);
  update(gradients, clip_factor(result.grad_norm, max_norm_));
  return result;
}

double Trainer::norm_of(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) sum += sum_of_squares(values);
  return std::sqrt(sum);
}

void Trainer::update(Tensors& gradients, double factor) {
  ++step_;
  for (const NamedShape& p : parameter_shapes(config_)) {
    Vec& gradient = gradients.at(p.name);
    for (double& g : gradient) g *= factor;
    AdamW options = options_;
    if (p.shape.size() < 2) options.weight_decay = 0;
    adamw_step(parameters_.at(p.name), m_.at(p.name), v_.at(p.name), gradient, step_, options);
  }
}

}  // namespace llmc::oracle
