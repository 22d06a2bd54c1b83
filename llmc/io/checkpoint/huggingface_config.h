// config.json of a GPT-2 in the form of transformers: the shape of a model, its special tokens and
// the labels of a classifier.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/ops/activation_kind.h"

namespace llmc {

inline constexpr const char* kConfigName = "config.json";

// The settings in config.json of a GPT-2. The engine writes its dropout probabilities there but
// does not use those it reads.
struct HuggingFaceConfig {
  std::int64_t vocab_size = 50257;  // rows of wte, without padding
  std::int64_t n_positions = 1024;
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;
  std::int64_t n_embd = 768;
  double layer_norm_epsilon = 1e-5;
  std::optional<std::int64_t> n_inner;  // 4 n_embd if empty
  Activation activation_function = Activation::gelu_new;
  bool scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;
  // Dropout of the training run that produced the weights. If config.json has no value,
  // transformers uses 0.1.
  double embd_pdrop = 0, attn_pdrop = 0, resid_pdrop = 0;
  std::optional<std::int64_t> bos_token_id = 50256;
  std::vector<std::int64_t> eos_token_ids = {50256};  // each of them ends a text
  // Of a classifier, a GPT2ForSequenceClassification: the names of its labels (id2label), all
  // different, at least two, and the token that pads texts, which has no meaning in a text. A
  // language model has none.
  std::vector<std::string> label_names = {};
  std::optional<std::int64_t> pad_token_id = {};

  bool operator==(const HuggingFaceConfig&) const = default;
};

// The names that transformers gives to labels without names: LABEL_0, LABEL_1, ...
std::vector<std::string> default_label_names(std::int64_t count);

// Errors call the text `file`. Throws unless it describes a GPT-2, or a model of its family, that
// this engine computes exactly.
HuggingFaceConfig parse_huggingface_config(std::string_view text, const std::string& file);

// Returns the properties in which the model differs from all sizes of GPT-2, such as "n_inner 128,
// activation_function gelu".
std::string differences_from_gpt2(const HuggingFaceConfig& config);

// Reads config.json of the directory.
HuggingFaceConfig read_huggingface_config(const std::filesystem::path& directory);

// Returns the text of config.json for AutoConfig and GPT2LMHeadModel, or
// GPT2ForSequenceClassification if there are labels. `dtype` is the dtype of the weights.
std::string huggingface_config_text(const HuggingFaceConfig& config, TensorDtype dtype);

// Returns the text of a config.json as that of a classifier with the labels and the pad token of
// `config`, of which it has at least two.
std::string classifier_config_text(std::string_view text, const HuggingFaceConfig& config);

// Returns the text of a config.json with another dtype of the weights, such as "float32".
std::string change_config_dtype(std::string_view config, const std::string& dtype);

}  // namespace llmc
