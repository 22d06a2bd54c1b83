#include "llmc/config/huggingface_shape.h"

#include "llmc/base/error.h"

namespace llmc {

HuggingFaceConfig to_huggingface(const ModelConfig& config,
                                 std::optional<std::int64_t> end_of_text) {
  HuggingFaceConfig out;
  out.vocab_size = config.vocabulary;
  out.n_positions = config.context;
  out.n_layer = config.layers;
  out.n_head = config.heads;
  out.n_embd = config.channels;
  out.n_inner = config.inner;
  out.activation_function = config.activation;
  out.layer_norm_epsilon = config.norm_epsilon;
  out.scale_attn_weights = config.scale_attention;
  out.scale_attn_by_inverse_layer_idx = config.scale_attention_by_layer;
  out.tie_word_embeddings = config.tied_head;
  out.label_names = default_label_names(config.labels);
  if (config.labels > 0) out.pad_token_id = end_of_text;
  out.bos_token_id = end_of_text;
  out.eos_token_ids.clear();
  if (end_of_text) out.eos_token_ids = {*end_of_text};
  return out;
}

ModelConfig from_huggingface(const HuggingFaceConfig& config, const std::string& file) {
  ModelConfig out;
  out.vocabulary = config.vocab_size;
  out.context = config.n_positions;
  out.layers = config.n_layer;
  out.heads = config.n_head;
  out.channels = config.n_embd;
  out.inner = config.n_inner;
  out.activation = config.activation_function;
  out.norm_epsilon = config.layer_norm_epsilon;
  out.scale_attention = config.scale_attn_weights;
  out.scale_attention_by_layer = config.scale_attn_by_inverse_layer_idx;
  out.tied_head = config.tie_word_embeddings;
  out.labels = static_cast<std::int64_t>(config.label_names.size());
  try {
    check_config(out);
  } catch (const Error& error) {
    fail(file + ": " + error.what());
  }
  return out;
}

}  // namespace llmc
