// A directory that transformers' save_pretrained writes and from_pretrained reads: config.json and
// model.safetensors, or several weight files with an index. Tensor names are those of
// GPT2LMHeadModel without the prefix `transformer.`: wte.weight, h.0.attn.c_attn.weight, ln_f.bias.
// A classifier, GPT2ForSequenceClassification, also has score.weight (labels, C). Linear layers are
// stored (in, out), as in its Conv1D.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/huggingface_config.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightsIndexName = "model.safetensors.index.json";

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

  // The same for a part of a tensor, whose name and shape it has. `dst` has room for part.count()
  // elements.
  void load_part(const Slice& part, float* dst) const;

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
