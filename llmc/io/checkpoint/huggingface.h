// A directory that transformers' save_pretrained writes and from_pretrained reads: config.json and
// model.safetensors, or several weight files with an index. Tensor names are those of
// GPT2LMHeadModel without the prefix `transformer.`: wte.weight, h.0.attn.c_attn.weight, ln_f.bias.
// Linear layers are stored (in, out), as in its Conv1D.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/ops/activation_kind.h"

namespace llmc {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightsIndexName = "model.safetensors.index.json";

// ---- config --------------------------------------------------------------------------------

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
  // Names of the classes (id2label); empty for a language model. A classifier is a
  // GPT2ForSequenceClassification, which ignores padding by its pad_token_id.
  std::vector<std::string> label_names = {};
  std::optional<std::int64_t> pad_token_id = {};

  bool operator==(const HuggingFaceConfig&) const = default;
};

// Errors call the text `file`. Throws unless it describes a GPT-2, or a model of its family, that
// this engine computes exactly.
HuggingFaceConfig parse_huggingface_config(std::string_view text, const std::string& file);

// Returns the properties in which the model differs from all sizes of GPT-2, such as "n_inner 128,
// activation_function gelu".
std::string differences_from_gpt2(const HuggingFaceConfig& config);

// Reads config.json of the directory.
HuggingFaceConfig read_huggingface_config(const std::filesystem::path& directory);

// Returns the text of config.json for AutoConfig and GPT2LMHeadModel, or
// GPT2ForSequenceClassification if there are labels. `dtype` is the dtype of the
// weights.
std::string huggingface_config_text(const HuggingFaceConfig& config, TensorDtype dtype);

// Returns the text of a config.json with another dtype of the weights, such as "float32".
std::string change_config_dtype(std::string_view config, const std::string& dtype);

// ---- weights -------------------------------------------------------------------------------

// Returns transformers' name for a tensor: only the head is outside its `transformer`.
std::string huggingface_name(const std::string& name);

// Headers for SafetensorsWriter or CheckpointWriter: the same tensors with the names of
// GPT2LMHeadModel.
std::vector<TensorHeader> huggingface_tensors(std::vector<TensorHeader> tensors);

// Throws unless the directory has weights in safetensors files. For weights in PyTorch's own files,
// the hint is the command that converts them.
void require_safetensors(const std::filesystem::path& directory);

// The tensor that gives the logits: wte.weight, lm_head.weight, or score.weight of a classifier.
enum class StoredHead { tied, own, score };
StoredHead stored_head(const HuggingFaceConfig& config);

// The weights in a directory, found by name in any of its files. Names may have the prefixes of
// torch.compile (_orig_mod.) and of DistributedDataParallel (module.).
class HuggingFaceWeights {
 public:
  // Opens and checks all files. Throws if a file is missing or invalid, or if a tensor occurs
  // twice. With a tied head, lm_head.weight may take the place of wte.weight; if both are there,
  // throws if they are not bit for bit equal: the engine has one tensor for both. Tensors of other
  // heads than `head`, such as v_head.summary.weight, are ignored with a warning.
  explicit HuggingFaceWeights(const std::filesystem::path& directory,
                              StoredHead head = StoredHead::tied);

  // The tensors of the model, sorted, without a tied lm_head.weight and the causal masks
  // of old exports.
  std::vector<std::string> names() const;

  bool contains(const std::string& name) const { return locations_.contains(name); }

  // Throws unless the directory has exactly these tensors; the error lists missing and unexpected
  // ones.
  void require_exactly(const std::vector<std::string>& expected) const;

  // Loads a tensor, by its name without prefix, as float. Throws if it is missing, has another
  // shape or a dtype that cannot be converted, or if an element is not finite.
  void load(const std::string& name, const Shape& shape, float* dst) const {
    file_of(name).read_as_float(get(name, shape), dst);
  }

  // Returns a tensor as stored. Throws if it is missing or has another shape.
  const TensorEntry& get(const std::string& name, const Shape& shape) const {
    return file_of(name).get(location(name).stored_name, shape);
  }

  // Maps its bytes. Throws like get().
  MappedFile map(const std::string& name, const Shape& shape) const {
    return file_of(name).map(get(name, shape));
  }

  // Returns the stored dtype of a tensor. Throws if the tensor is missing.
  TensorDtype dtype(const std::string& name) const { return entry(name).dtype; }

  // Returns file and tensor for an error: "DIR/model.safetensors: tensor transformer.wte.weight".
  std::string label(const std::string& name) const {
    return safetensors_detail::label(file_of(name).path().string(), location(name).stored_name);
  }

 private:
  struct TensorLocation {
    std::size_t file = 0;
    std::string stored_name;
  };

  static std::string list(const std::vector<std::string>& names);

  // The name of a stored tensor without prefixes.
  static std::string plain_name(std::string stored_name);
  // h.N.attn.bias and h.N.attn.masked_bias were constants that old versions saved with the weights.
  static bool is_mask(const std::string& name);
  // Whether a tensor belongs to another head.
  static bool is_of_other_head(const std::string& name, StoredHead head);

  void add(const std::string& stored_name, std::size_t file, StoredHead head);

  void open_shards(StoredHead head);

  const TensorLocation& location(const std::string& name) const;
  const SafetensorsFile& file_of(const std::string& name) const {
    return files_[location(name).file];
  }
  const TensorEntry& entry(const std::string& name) const {
    return *file_of(name).find(location(name).stored_name);
  }

  void tie_head();
  void report_ignored() const;

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorLocation> locations_;  // by name without prefix
  std::vector<std::string> ignored_;                 // stored names of tensors of other heads
};

// Writes config.json and model.safetensors into `directory`, which is created if missing;
// from_pretrained loads the result. The tensors, all F32 or all BF16, have names without prefix.
// `bytes_of(i)` returns the bytes of tensors[i] and is called once per tensor, in order. An
// existing file is replaced when the new one is complete.
void write_huggingface(const std::filesystem::path& directory, const HuggingFaceConfig& config,
                       const std::vector<TensorHeader>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of);

}  // namespace llmc
