// An adapter of a GPT-2 as PEFT saves it: adapter_config.json and adapter_model.safetensors. PEFT
// loads what write_adapter() writes. In addition, llmc_base.json has the path and the hash of the
// base model; PEFT ignores it.
//
// Parameters in the engine, and as they are stored:
//
//     h.0.attn.c_attn.lora_A.weight (R, inputs)    ....lora_A.weight (R, inputs)
//     h.0.attn.c_attn.lora_B.weight (R, outputs)   ....lora_B.weight (outputs, R)
//     h.0.attn.c_attn.ia3_l (3C)                   ....ia3_l (3C, 1)
//     h.0.mlp.c_proj.ia3_l (inputs)                ....ia3_l (1, inputs)
//     score.weight (labels, C)                     base_model.model.score.weight (labels, C)
//
// where .... is base_model.model.transformer.h.0.attn.c_attn. If an adapter leaves queries
// unchanged (AdapterShape::fixes_query), the engine has only the last 2C elements of c_attn's
// vector; the file has C ones before them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";

// ---- tensors -------------------------------------------------------------------------------

// A parameter of an adapter, in the engine and in files.
struct AdapterTensor {
  std::string name;           // in the engine
  Shape shape;                // in the engine
  TensorHeader stored;        // name and shape in files; F32
  bool transposed = false;    // stored as the transpose
  std::int64_t num_ones = 0;  // elements before those of the engine, all of them 1
};

// All parameters of an adapter of this model, in the order of the model; the classifier is last.
// Throws for a layer that the model lacks or that cannot have such an adapter.
std::vector<AdapterTensor> adapter_tensors(const AdapterConfig& config,
                                           const HuggingFaceConfig& model);

// ---- reading -------------------------------------------------------------------------------

// Whether the directory has an adapter: a file adapter_config.json.
bool is_adapter_directory(const std::filesystem::path& directory);

// The base model as an adapter names it: a directory, the name of a model, or an empty text.
struct AdapterBases {
  std::string config;  // base_model_name_or_path in adapter_config.json
  std::string own;     // path in llmc_base.json
};
AdapterBases read_adapter_bases(const std::filesystem::path& directory);

// The files of an adapter, which stay open.
class AdapterFiles {
 public:
  // Opens and checks the files of an adapter for this base model. Throws if a field, a name or a
  // shape does not fit the model or is not supported; the error names file and field or tensor.
  // `fixes_query` demands that IA3 leaves queries unchanged. Without it, c_attn's vectors have 3C
  // elements, whatever their values.
  AdapterFiles(const std::filesystem::path& directory, const HuggingFaceConfig& model,
               bool fixes_query = false);

  const AdapterConfig& config() const { return config_; }
  const std::vector<AdapterTensor>& tensors() const { return tensors_; }

  // Loads a parameter by its name in the engine; `dst` has the elements of its shape. Throws if
  // there is no such parameter, if its dtype cannot be converted to float, if an element is not
  // finite, or if an element that fixes_query demands to be 1 is not.
  void load(const std::string& name, std::span<float> dst) const;

 private:
  void read_layers(const PeftSettings& settings, const HuggingFaceConfig& model);
  void add_lora(const PeftSettings& settings, const std::string& layer, bool is_target);
  void add_ia3(const PeftSettings& settings, const std::string& layer, bool is_target);
  bool require_target(const std::string& tensor, bool is_stored, bool is_target) const;
  void check_tensors(const HuggingFaceConfig& model) const;
  std::string label(const std::string& stored_name) const;

  std::filesystem::path directory_;
  SafetensorsFile file_;
  AdapterConfig config_;
  std::vector<AdapterTensor> tensors_;
};

// ---- writing -------------------------------------------------------------------------------

// Sets `values` to a parameter, which has this name in the engine.
using AdapterValues = std::function<void(const std::string& name, std::span<float> values)>;

// Writes all of the tensors, in their order, to a writer for the `stored` headers. Throws if an
// element is not finite.
void write_adapter_tensors(SafetensorsWriter& writer, const std::vector<AdapterTensor>& tensors,
                           const AdapterValues& values_of);

// The text of llmc_base.json, which is written only if there is a hash.
std::string adapter_base_text(const AdapterConfig& config);

// Writes a directory with the adapter. It appears under its name when all files are durable. Throws
// if something exists there, unless it is an empty directory.
void write_adapter(const std::filesystem::path& directory, const AdapterConfig& config,
                   const HuggingFaceConfig& model, const AdapterValues& values_of);

}  // namespace llmc
