// Conversion between Gpt2Config and Hugging Face's config, and loading of weights from a
// transformers directory, a directory with INT8 weights or an llm.c model file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/work_progress.h"
#include "llmc/config/gpt2_config.h"
#include "llmc/device/device.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/checkpoint/quantized_files.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/model/int8_weights.h"
#include "llmc/model/parameters.h"

namespace llmc {

inline HuggingFaceConfig to_huggingface(const Gpt2Config& config,
                                        std::optional<std::int64_t> end_of_text) {
  HuggingFaceConfig out;
  out.vocab_size = config.vocabulary;
  out.n_positions = config.context;
  out.n_layer = config.layers;
  out.n_head = config.heads;
  out.n_embd = config.channels;
  out.bos_token_id = out.eos_token_id = end_of_text;
  return out;
}

inline Gpt2Config from_huggingface(const HuggingFaceConfig& config, const std::string& directory) {
  if (config.layer_norm_epsilon != 1e-5) {
    fail(directory + ": layer_norm_epsilon is " + std::to_string(config.layer_norm_epsilon),
         "use a model with GPT-2's value, 1e-05");
  }
  Gpt2Config out;
  out.vocabulary = config.vocab_size;
  out.context = config.n_positions;
  out.layers = config.n_layer;
  out.heads = config.n_head;
  out.channels = config.n_embd;
  check_config(out);
  return out;
}

// Returns the path of the weights that `path` names: a Hugging Face directory, a checkpoint or an
// llm.c model file itself; for the --out directory of a run, its newest valid checkpoint, which is
// reported on stderr. Throws for anything else; the error names `flag`.
inline std::string find_pretrained(const std::string& flag, const std::string& path) {
  if (is_llmc_model_file(path)) return path;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    const bool file = std::filesystem::exists(path, ignored);
    fail(flag + " " + path +
             (file ? " is not a directory, and does not end in .bin" : " does not exist"),
         "give a directory that transformers saved, a checkpoint of train_gpt2, or a model file of "
         "llm.c (.bin)");
  }
  if (std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored)) return path;
  const std::optional<std::filesystem::path> newest = newest_valid_checkpoint(path);
  if (!newest) {
    fail(flag + " " + path + " contains no " + kConfigName + " and no valid checkpoint",
         "give a directory that transformers saved, a checkpoint of train_gpt2 or its --out");
  }
  Notice::print(flag + ": " + newest->string() + ", the newest valid checkpoint of " + path);
  return newest->string();
}

// How the weights of a directory are INT8; nothing for float weights and llm.c's model files.
inline std::optional<QuantizedFormat> find_quantized_format(const std::filesystem::path& path) {
  if (is_llmc_model_file(path)) return std::nullopt;
  return read_quantized_format(path);
}

// Throws that a model is INT8. Errors call it `name`, such as "--base DIR".
[[noreturn]] inline void refuse_quantized(const std::string& name) {
  fail(name + " holds INT8 weights of `infer_gpt2 quantize`", "give the float model");
}

// Like find_pretrained(), for a model that must have float weights.
inline std::string find_float_model(const std::string& flag, const std::string& path) {
  const std::string model = find_pretrained(flag, path);
  if (find_quantized_format(model)) refuse_quantized(flag + " " + model);
  return model;
}

// Reads the config of a model from a directory that save_pretrained or this engine wrote, or from
// an llm.c model file (.bin).
inline HuggingFaceConfig read_pretrained_config(const std::filesystem::path& path) {
  return is_llmc_model_file(path) ? LlmcModelFile(path).config() : read_huggingface_config(path);
}

// Throws unless the model has one embedding row per token of the tokenizer. Errors name the model's
// origin, `weights`, such as "--model DIR".
inline void check_vocabulary(const std::string& weights, std::int64_t vocabulary,
                             const Tokenizer& tokenizer) {
  if (tokenizer.vocabulary_size() == vocabulary) return;
  fail(weights + " has a vocabulary of " + std::to_string(vocabulary) + " tokens, the tokenizer " +
           tokenizer.name() + " has " + std::to_string(tokenizer.vocabulary_size()),
       "give the " + quantity("tokenizer") + " that the weights were trained with");
}

// Reads one tensor of `file` into `values`. A state of several ranks provides first_rank() and
// spread(values, stream): rank 0 reads.
template <class File, class State>
void read_tensor(const File& file, const ParameterSpec& spec, State& state,
                 std::vector<float>& values, Stream& stream) {
  values.resize(static_cast<std::size_t>(spec.size()));
  if constexpr (requires { state.spread(values, stream); }) {
    if (state.first_rank()) file.load(spec.name, spec.shape, values.data());
    state.spread(values, stream);
  } else {
    file.load(spec.name, spec.shape, values.data());
  }
}

// The linear layers of a model, in the order of ActivationScales::fixed.
inline std::vector<std::string> linear_layers(const ParameterTable& table) {
  std::vector<std::string> layers;
  constexpr std::string_view kSuffix = ".weight";
  for (const ParameterSpec& spec : table.specs()) {
    if (is_quantized(spec) && spec.block != kEmbeddingBlock)
      layers.push_back(spec.name.substr(0, spec.name.size() - kSuffix.size()));
  }
  return layers;
}

// The names of the tensors that files of this format have for activations.
inline std::vector<std::string> activation_tensors(const ParameterTable& table,
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
template <class T>
void load_activation_scales(const HuggingFaceWeights& weights, const QuantizedFormat& format,
                            Int8Weights<T>& state, Stream& stream) {
  std::vector<Quantization> fixed;
  std::vector<float> factors;
  const std::int64_t hidden = state.activations().gelu_factors.shape[1];
  for (const std::string& layer : linear_layers(state.table())) {
    if (format.is_static) fixed.push_back(read_input_quantization(weights, layer));
    if (!format.smooths_gelu || !layer.ends_with("mlp.c_proj")) continue;
    const std::vector<float> own = read_factors(weights, input_smoothing_name(layer), {hidden});
    factors.insert(factors.end(), own.begin(), own.end());
  }
  if (!fixed.empty()) state.set_fixed_quantization(std::move(fixed));
  if (!factors.empty()) state.set_gelu_factors(factors, stream);
}

// Loads INT8 weights as they are stored into a state that has Int8Weights as quantized().
// Throws if the state has none.
template <class State>
void load_quantized_weights(const std::filesystem::path& path, State& state, Stream& stream) {
  if constexpr (requires { state.quantized()->set_codes({}, {}, stream); }) {
    auto* const quantized = state.quantized();
    if (quantized == nullptr) refuse_quantized(path.string());
    const HuggingFaceWeights weights(path);
    std::vector<std::string> names, matrices;
    for (const ParameterSpec& spec : state.table().specs()) {
      names.push_back(spec.name);
      if (is_quantized(spec)) matrices.push_back(spec.name);
    }
    require_codes(weights, matrices);
    for (const std::string& name : matrices) names.push_back(scale_name(name));
    const QuantizedFormat format = read_quantized_format(path).value();
    for (const std::string& name : activation_tensors(state.table(), format)) names.push_back(name);
    weights.require_exactly(names);
    load_activation_scales(weights, format, *quantized, stream);
    WorkProgress progress("loading " + path.string(), state.table().count());
    std::vector<float> values;
    for (const ParameterSpec& spec : state.table().specs()) {
      if (is_quantized(spec)) {
        const WeightCodes weight =
            read_quantized_weight(weights, spec.name, spec.shape, output_axis(spec));
        quantized->set_codes(spec, weight, stream);
      } else {
        read_tensor(weights, spec, state, values, stream);
        state.set_weight(spec, values.data(), stream);
      }
      progress.add(spec.size());
    }
  } else {
    refuse_quantized(path.string());
  }
}

// Loads the weights at `path` into `state`, which provides table() and set_weight(spec, values,
// stream), and, with several ranks, what read_tensor needs. Weights that are INT8 need a state with
// INT8 weights.
template <class State>
void load_weights(const std::filesystem::path& path, State& state, Stream& stream) {
  const auto load_from = [&](const auto& file) {
    WorkProgress progress("loading " + path.string(), state.table().count());
    std::vector<float> values;
    for (const ParameterSpec& spec : state.table().specs()) {
      read_tensor(file, spec, state, values, stream);
      state.set_weight(spec, values.data(), stream);
      progress.add(spec.size());
    }
  };
  if (is_llmc_model_file(path)) {
    load_from(LlmcModelFile(path));
    return;
  }
  if (read_quantized_format(path)) return load_quantized_weights(path, state, stream);
  const HuggingFaceWeights weights(path);
  require_no_codes(weights);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : state.table().specs()) names.push_back(spec.name);
  weights.require_exactly(names);
  load_from(weights);
}

}  // namespace llmc
