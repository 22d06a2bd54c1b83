// GPT-2 in double precision, forward, backward and training step, composed from ops.h.
//
// It can be read as the definition of the model (Radford et al. 2019): pre-norm blocks, learned
// positions, tanh-GELU, tied embedding. A map holds the parameters by their Hugging Face names, not
// by index. The speed is enough for the small shapes of tests.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "test/oracle/ops.h"

namespace llmc::oracle {

struct Config {
  Index T_max = 0;  // context: rows of wpe
  Index V = 0, L = 0, NH = 0, C = 0;
  Index HS() const { return C / NH; }
};

using Shape = std::vector<Index>;
using Tensors = std::map<std::string, Vec>;  // by Hugging Face name

struct NamedShape {
  std::string name;
  Shape shape;
};

inline Index element_count(const Shape& shape) {
  Index n = 1;
  for (const Index d : shape) n *= d;
  return n;
}

inline std::string block_name(Index layer, const std::string& name) {
  return "h." + std::to_string(layer) + "." + name;
}

// All parameters, in the order in which the forward pass first uses them.
inline std::vector<NamedShape> parameter_shapes(const Config& config) {
  const Index C = config.C;
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
    affine(block_name(l, "mlp.c_fc"), {C, 4 * C});
    affine(block_name(l, "mlp.c_proj"), {4 * C, C});
  }
  affine("ln_f", {C});
  return shapes;
}

inline Tensors zeros_like_parameters(const Config& config) {
  Tensors zeros;
  for (const NamedShape& p : parameter_shapes(config)) zeros[p.name] = Vec(element_count(p.shape));
  return zeros;
}

struct Batch {
  Index B = 0, T = 0;
  Ints tokens, targets;  // (B, T)
  Ints doc_start;        // (B, T) first key each position sees, or empty
};

// Activations that the backward pass of one block needs. Rows are B * T.
struct BlockActivations {
  Vec input;            // (B, T, C) residual stream
  LayerNorm ln_1;       // (B, T, C)
  Vec qkv;              // (B, T, 3C)
  Attention attention;  // (B, T, C)
  Vec residual_mid;     // (B, T, C) residual stream after attention
  LayerNorm ln_2;       // (B, T, C)
  Vec fc;               // (B, T, 4C) before the GELU
  Vec gelu;             // (B, T, 4C)
};

struct Activations {
  std::vector<BlockActivations> blocks;
  Vec final_residual;     // (B, T, C) residual stream after the last block
  LayerNorm ln_f;         // (B, T, C)
  Vec logits;             // (B, T, V)
  Classifier classifier;  // mean loss over all B * T targets, d_logits
};

// The sites of dropout: 0 is the embedding. In layer l, 3l + 1 is attention; 3l + 2 and 3l + 3 are
// what the attention and the MLP add to the residual stream.
inline AttentionFactor attention_factor(const Dropout& dropout, Index layer) {
  if (dropout.attention == 0) return {};
  return [&dropout, layer](Index b, Index h, Index i, Index j) {
    return dropout.factor(dropout.attention, 3 * layer + 1, b, i, j, h);
  };
}

// Applies dropout to x (B, T, C): what a block's attention (branch 2) or MLP (branch 3) adds to the
// residual stream, or its gradient.
inline Vec branch_with_dropout(Vec x, const Dropout& dropout, Index layer, Index branch,
                               const Batch& batch, Index C) {
  apply_dropout(x, dropout, dropout.residual, 3 * layer + branch, batch.B, batch.T, C);
  return x;
}

// Computes one block, stores what backward needs in `a`, and returns the residual stream.
inline Vec block_forward(const Config& config, const Tensors& p, Index layer, const Batch& batch,
                         BlockActivations& a, const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  const Index C = config.C;
  const auto w = [&](const char* name) -> const Vec& { return p.at(block_name(layer, name)); };
  a.ln_1 = layernorm_forward(a.input, w("ln_1.weight"), w("ln_1.bias"), N, C);
  a.qkv = linear_forward(a.ln_1.out, w("attn.c_attn.weight"), w("attn.c_attn.bias"), N, C, 3 * C);
  a.attention = attention_forward(a.qkv, batch.B, batch.T, config.NH, config.HS(), batch.doc_start,
                                  attention_factor(dropout, layer));
  const Vec proj =
      linear_forward(a.attention.out, w("attn.c_proj.weight"), w("attn.c_proj.bias"), N, C, C);
  a.residual_mid =
      residual_forward(a.input, branch_with_dropout(proj, dropout, layer, 2, batch, C));
  a.ln_2 = layernorm_forward(a.residual_mid, w("ln_2.weight"), w("ln_2.bias"), N, C);
  a.fc = linear_forward(a.ln_2.out, w("mlp.c_fc.weight"), w("mlp.c_fc.bias"), N, C, 4 * C);
  a.gelu = gelu_forward(a.fc);
  const Vec mlp = linear_forward(a.gelu, w("mlp.c_proj.weight"), w("mlp.c_proj.bias"), N, 4 * C, C);
  return residual_forward(a.residual_mid, branch_with_dropout(mlp, dropout, layer, 3, batch, C));
}

// The whole forward pass. Without targets (generation) the classifier stays empty.
inline Activations forward(const Config& config, const Tensors& p, const Batch& batch,
                           const Dropout& dropout = {}) {
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
  a.ln_f = layernorm_forward(a.final_residual, p.at("ln_f.weight"), p.at("ln_f.bias"), N, config.C);
  a.logits = lm_head_forward(a.ln_f.out, p.at("wte.weight"), N, config.C, config.V);
  if (!batch.targets.empty()) a.classifier = classifier(a.logits, batch.targets, N, config.V);
  return a;
}

// Takes d_out (B, T, C), the gradient of the block's output; adds the block's parameter gradients
// to `d`; returns the gradient of the block's input.
inline Vec block_backward(const Config& config, const Tensors& p, Index layer, const Batch& batch,
                          const BlockActivations& a, const Vec& d_out, Tensors& d,
                          const Dropout& dropout) {
  const Index N = batch.B * batch.T;
  const Index C = config.C;
  const auto w = [&](const char* name) -> const Vec& { return p.at(block_name(layer, name)); };
  const auto add_gradients = [&](const std::string& name, const Vec& weight, const Vec& bias) {
    add_to(d.at(block_name(layer, name + ".weight")), weight);
    add_to(d.at(block_name(layer, name + ".bias")), bias);
  };
  const LinearGradients proj =
      linear_backward(branch_with_dropout(d_out, dropout, layer, 3, batch, C), a.gelu,
                      w("mlp.c_proj.weight"), N, 4 * C, C);
  add_gradients("mlp.c_proj", proj.w, proj.b);
  const LinearGradients fc =
      linear_backward(gelu_backward(proj.x, a.fc), a.ln_2.out, w("mlp.c_fc.weight"), N, C, 4 * C);
  add_gradients("mlp.c_fc", fc.w, fc.b);
  const LayerNormGradients ln_2 =
      residual_layernorm_backward(fc.x, d_out, a.residual_mid, w("ln_2.weight"), N, C);
  add_gradients("ln_2", ln_2.weight, ln_2.bias);

  const LinearGradients attn_proj =
      linear_backward(branch_with_dropout(ln_2.x, dropout, layer, 2, batch, C), a.attention.out,
                      w("attn.c_proj.weight"), N, C, C);
  add_gradients("attn.c_proj", attn_proj.w, attn_proj.b);
  const Vec d_qkv = attention_backward(attn_proj.x, a.qkv, batch.B, batch.T, config.NH, config.HS(),
                                       batch.doc_start, attention_factor(dropout, layer));
  const LinearGradients attn_qkv =
      linear_backward(d_qkv, a.ln_1.out, w("attn.c_attn.weight"), N, C, 3 * C);
  add_gradients("attn.c_attn", attn_qkv.w, attn_qkv.b);
  const LayerNormGradients ln_1 =
      residual_layernorm_backward(attn_qkv.x, ln_2.x, a.input, w("ln_1.weight"), N, C);
  add_gradients("ln_1", ln_1.weight, ln_1.bias);
  return ln_1.x;
}

// The gradient of the mean loss with respect to every parameter. The tied wte.weight receives two
// parts: from the head and from the embedding.
inline Tensors backward(const Config& config, const Tensors& p, const Batch& batch,
                        const Activations& a, const Dropout& dropout = {}) {
  const Index N = batch.B * batch.T;
  Tensors d = zeros_like_parameters(config);
  const LmHeadGradients head = lm_head_backward(a.classifier.d_logits, a.ln_f.out,
                                                p.at("wte.weight"), N, config.C, config.V);
  add_to(d.at("wte.weight"), head.wte);
  const LayerNormGradients ln_f =
      layernorm_backward(head.h, a.final_residual, p.at("ln_f.weight"), N, config.C);
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

inline double mean_loss(const Config& config, const Tensors& p, const Batch& batch,
                        const Dropout& dropout = {}) {
  return forward(config, p, batch, dropout).classifier.loss;
}

struct StepResult {
  double loss = 0;       // mean over the micro-batches, before the update
  double grad_norm = 0;  // before clipping
};

// AdamW with gradient accumulation, global-norm clipping, and weight decay on the matrices and
// embeddings only (biases and LayerNorm parameters are vectors).
class Trainer {
 public:
  Trainer(Config config, Tensors parameters, AdamW options, double max_norm)
      : config_(config),
        parameters_(std::move(parameters)),
        options_(options),
        max_norm_(max_norm) {
    m_ = v_ = zeros_like_parameters(config_);
  }

  // One update from micro-batches of equal size: the gradient of the mean of their mean losses.
  StepResult step(const std::vector<Batch>& micro_batches) {
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

  const Tensors& parameters() const { return parameters_; }
  const Tensors& first_moments() const { return m_; }
  const Tensors& second_moments() const { return v_; }

 private:
  static double norm_of(const Tensors& tensors) {
    double sum = 0;
    for (const auto& [name, values] : tensors) sum += sum_of_squares(values);
    return std::sqrt(sum);
  }

  void update(Tensors& gradients, double factor) {
    ++step_;
    for (const NamedShape& p : parameter_shapes(config_)) {
      Vec& gradient = gradients.at(p.name);
      for (double& g : gradient) g *= factor;
      AdamW options = options_;
      if (p.shape.size() < 2) options.weight_decay = 0;
      adamw_step(parameters_.at(p.name), m_.at(p.name), v_.at(p.name), gradient, step_, options);
    }
  }

  Config config_;
  Tensors parameters_, m_, v_;
  AdamW options_;
  double max_norm_;
  std::int64_t step_ = 0;
};

}  // namespace llmc::oracle
