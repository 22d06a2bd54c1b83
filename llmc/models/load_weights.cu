#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/work_progress.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/checkpoint/quantized_files.h"
#include "llmc/models/int8_layout.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/parameter_slices.h"
#include "llmc/models/pretrained.h"

namespace llmc {
namespace {

// Whether a table has a classifier and the model in a file has none: what it adds is not loaded.
bool adds_score(const ParameterTable& table, const HuggingFaceConfig& stored) {
  return is_score(table.head()) && stored.label_names.empty();
}

// The parameters of the model in a file that the table has too.
std::vector<const ParameterSpec*> stored_specs(const ParameterTable& table,
                                               const HuggingFaceConfig& stored) {
  std::vector<const ParameterSpec*> specs;
  for (const ParameterSpec& spec : table.specs()) {
    const bool is_new = spec.is_adapter || (is_score(spec) && adds_score(table, stored));
    if (!is_new) specs.push_back(&spec);
  }
  return specs;
}

// Loads one tensor of `file`; `values` is memory for it.
template <class File>
void load_tensor(const File& file, const ParameterSpec& spec, LoadableWeights& weights,
                 std::vector<float>& values, Stream& stream, BaseHash* hash = nullptr) {
  const ElementRange kept = weights.kept_weights(spec);
  const bool is_hashed = hash != nullptr && weights.first_rank();
  if (kept.count == spec.size() || is_hashed) {
    values.resize(static_cast<std::size_t>(spec.size()));
    file.load(spec.name, spec.shape, values.data());
    if (is_hashed) hash->add(spec, values.data());
    return weights.set_weight(spec, values.data(), stream);
  }
  if (kept.count == 0) return;
  values.resize(static_cast<std::size_t>(kept.count));
  file.load_part(slice_of(spec, weights.table().place(), spec.name, kept), values.data());
  weights.set_kept_weights(spec, values.data(), stream);
}

template <class File>
void load_floats(const std::filesystem::path& path, const File& file,
                 const std::vector<const ParameterSpec*>& specs, LoadableWeights& weights,
                 Stream& stream, BaseHash* hash) {
  WorkProgress progress("loading " + path.string(), weights.table().count());
  std::vector<float> values;
  for (const ParameterSpec* spec : specs) {
    load_tensor(file, *spec, weights, values, stream, hash);
    progress.add(spec->size());
  }
}

// The names of the tensors that files of this format have for activations.
std::vector<std::string> activation_tensors(const ParameterTable& table,
                                            const QuantizedFormat& format) {
  std::vector<std::string> names;
  for (const std::string& layer : linear_layers(table)) {
    if (format.is_static) names.push_back(input_scale_name(layer));
    if (format.is_static) names.push_back(input_zero_point_name(layer));
    if (format.smooths_gelu && layer.ends_with("mlp.c_proj"))
      names.push_back(input_smoothing_name(layer));
  }
  return names;
}

// Loads what files of this format have for activations.
void load_activation_scales(const HuggingFaceWeights& file, const QuantizedFormat& format,
                            const ParameterTable& table, LoadableCodes& codes, Stream& stream) {
  std::vector<Quantization> fixed;
  std::vector<float> factors;
  const std::int64_t hidden = codes.activations().gelu_factors.shape[1];
  for (const std::string& layer : linear_layers(table)) {
    if (format.is_static) fixed.push_back(read_input_quantization(file, layer));
    if (!format.smooths_gelu || !layer.ends_with("mlp.c_proj")) continue;
    const std::vector<float> own = read_factors(file, input_smoothing_name(layer), {hidden});
    factors.insert(factors.end(), own.begin(), own.end());
  }
  if (!fixed.empty()) codes.set_fixed_quantization(std::move(fixed));
  if (!factors.empty()) codes.set_gelu_factors(factors, stream);
}

// Loads INT8 weights as they are stored.
void load_codes(const std::filesystem::path& path, const QuantizedFormat& format,
                LoadableWeights& weights, Stream& stream) {
  LoadableCodes* const codes = weights.quantized();
  if (codes == nullptr) refuse_quantized(path.string());
  const ParameterTable& table = weights.table();
  const HuggingFaceWeights file(path, table.tied_head() ? StoredHead::tied : StoredHead::own);
  std::vector<std::string> names, matrices;
  for (const ParameterSpec& spec : table.specs()) {
    names.push_back(spec.name);
    if (is_quantized(spec)) matrices.push_back(spec.name);
  }
  require_codes(file, matrices);
  for (const std::string& name : matrices) names.push_back(scale_name(name));
  for (const std::string& name : activation_tensors(table, format)) names.push_back(name);
  file.require_exactly(names);
  load_activation_scales(file, format, table, *codes, stream);
  WorkProgress progress("loading " + path.string(), table.count());
  std::vector<float> values;
  for (const ParameterSpec& spec : table.specs()) {
    if (is_quantized(spec)) {
      const WeightCodes weight =
          read_quantized_weight(file, spec.name, spec.shape, output_axis(spec));
      codes->set_codes(spec, weight, stream);
    } else {
      load_tensor(file, spec, weights, values, stream);
    }
    progress.add(spec.size());
  }
}

}  // namespace

void load_weights(const std::filesystem::path& path, LoadableWeights& weights, Stream& stream,
                  BaseHash* hash) {
  const ParameterTable& table = weights.table();
  const HuggingFaceConfig stored = read_pretrained_config(path);
  const std::vector<const ParameterSpec*> specs = stored_specs(table, stored);
  if (is_llmc_model_file(path))
    return load_floats(path, LlmcModelFile(path), specs, weights, stream, hash);
  if (const auto format = read_quantized_format(path))
    return load_codes(path, *format, weights, stream);
  // A classifier has no use for a head of tokens that is not tied.
  const bool drops_head = adds_score(table, stored) && !stored.tie_word_embeddings;
  const HuggingFaceWeights file(path, drops_head ? StoredHead::score : stored_head(stored));
  require_no_codes(file);
  std::vector<std::string> names;
  for (const ParameterSpec* spec : specs) names.push_back(spec->name);
  file.require_exactly(names);
  load_floats(path, file, specs, weights, stream, hash);
}

}  // namespace llmc
