// The shape of a GPT-2, and the properties in which models of its family differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/ops/activation_kind.h"

namespace llmc {

// Rows of the token embedding are padded to a multiple of this, which the GEMMs of the head are
// tuned for. The rows beyond V are zero and stay zero.
inline constexpr std::int64_t kVocabularyMultiple = 128;
// The same for the rows of score.weight: rows of logits are aligned to 16 bytes.
inline constexpr std::int64_t kLabelMultiple = 8;

struct ModelConfig {
  std::int64_t vocabulary = 50257;  // V
  std::int64_t context = 1024;      // number of position embeddings; T may be smaller
  std::int64_t layers = 12;         // L
  std::int64_t heads = 12;          // NH
  std::int64_t channels = 768;      // C

  // In transformers' config.json: n_inner, activation_function, layer_norm_epsilon,
  // scale_attn_weights, scale_attn_by_inverse_layer_idx and tie_word_embeddings.
  std::optional<std::int64_t> inner = {};  // hidden channels of the MLP, if not 4 C
  Activation activation = Activation::gelu_new;
  double norm_epsilon = 1e-5;             // added to the variance in each LayerNorm
  bool scale_attention = true;            // scores are divided by sqrt(HS)
  bool scale_attention_by_layer = false;  // those of layer l also by l + 1
  bool tied_head = true;  // wte is the weight of the logits; otherwise lm_head.weight is

  // Number of classes. 0: a language model. Otherwise the model is a classifier, whose head is
  // score.weight, whatever tied_head is.
  std::int64_t labels = 0;

  bool operator==(const ModelConfig&) const = default;
  std::int64_t head_size() const { return channels / heads; }                // HS
  std::int64_t hidden_size() const { return inner.value_or(4 * channels); }  // H
  // Number of logits of a row: of tokens, or of labels.
  std::int64_t num_logits() const { return labels > 0 ? labels : vocabulary; }
  // The factor of the attention scores of a layer.
  float attention_scale(std::int64_t layer) const;
};

// Throws if the engine does not support a model of this shape.
void check_config(const ModelConfig& config);

}  // namespace llmc
