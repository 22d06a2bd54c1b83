// GPT-2 in double precision, forward, backward and training step, composed from ops.h.
//
// It can be read as the definition of the model (Radford et al. 2019): pre-norm blocks, learned
// positions, tanh-GELU, tied embedding, and of the variants that transformers' GPT2Config names. A
// map holds the parameters by their Hugging Face names, not by index. The speed is enough for the
// small shapes of tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "test/oracle/attention.h"
#include "test/oracle/dropout.h"
#include "test/oracle/ops.h"
#include "test/oracle/vec.h"

namespace llmc::oracle {

struct Config {
  Index T_max = 0;  // context: rows of wpe
  Index V = 0, L = 0, NH = 0, C = 0;
  Activation activation = Activation::gelu_new;  // of the MLP
  std::optional<Index> inner = {};               // width of the MLP; 4C if not set
  double norm_epsilon = kLayerNormEps;           // of all LayerNorms
  bool scale_attention = true;                   // scores are divided by sqrt(HS)
  bool scale_attention_by_layer = false;         // scores are divided by the layer's number, from 1
  bool tied_head = true;                         // the LM head is wte.weight, not lm_head.weight

  Index HS() const { return C / NH; }
  Index inner_size() const { return inner.value_or(4 * C); }
  double attention_scale(Index layer) const;  // factor of q . k in layer 0, 1, ...
  std::string head_name() const { return tied_head ? "wte.weight" : "lm_head.weight"; }
};

using Shape = std::vector<Index>;
using Tensors = std::map<std::string, Vec>;  // by Hugging Face name

struct NamedShape {
  std::string name;
  Shape shape;
};

Index element_count(const Shape& shape);

inline std::string block_name(Index layer, const std::string& name) {
  return "h." + std::to_string(layer) + "." + name;
}

// All parameters, in the order in which the forward pass first uses them.
std::vector<NamedShape> parameter_shapes(const Config& config);

Tensors zeros_like_parameters(const Config& config);

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
  Vec fc;               // (B, T, inner) before the activation function
  Vec activated;        // (B, T, inner)
};

struct Activations {
  std::vector<BlockActivations> blocks;
  Vec final_residual;     // (B, T, C) residual stream after the last block
  LayerNorm ln_f;         // (B, T, C)
  Vec logits;             // (B, T, V)
  Classifier classifier;  // mean loss over all B * T targets, d_logits
};

// The whole forward pass. Without targets (generation) the classifier stays empty.
Activations forward(const Config& config, const Tensors& p, const Batch& batch,
                    const Dropout& dropout = {});

// The gradient of the mean loss with respect to every parameter. A tied wte.weight receives two
// parts: from the head and from the embedding.
Tensors backward(const Config& config, const Tensors& p, const Batch& batch, const Activations& a,
                 const Dropout& dropout = {});

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
  StepResult step(const std::vector<Batch>& micro_batches);

  const Tensors& parameters() const { return parameters_; }
  const Tensors& first_moments() const { return m_; }
  const Tensors& second_moments() const { return v_; }

 private:
  static double norm_of(const Tensors& tensors);

  void update(Tensors& gradients, double factor);

  Config config_;
  Tensors parameters_, m_, v_;
  AdamW options_;
  double max_norm_;
  std::int64_t step_ = 0;
};

}  // namespace llmc::oracle
