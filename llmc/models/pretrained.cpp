#include "llmc/models/pretrained.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/checkpoint/generation_config.h"
#include "llmc/io/checkpoint/llmc_model_file.h"

namespace llmc {

namespace {

// Whether a directory has an adapter, but no weights of a model.
bool holds_only_adapter(const std::filesystem::path& directory) {
  std::error_code ignored;
  return is_adapter_directory(directory) &&
         std::ranges::none_of(
             std::to_array({kWeightsName, kWeightsIndexName, "pytorch_model.bin",
                            "pytorch_model.bin.index.json"}),
             [&](const char* name) { return std::filesystem::exists(directory / name, ignored); });
}

void refuse_adapter(const std::string& flag, const std::filesystem::path& path) {
  if (!holds_only_adapter(path)) return;
  fail(flag + " " + path.string() + " holds an adapter, not a model",
       flag == "--model" ? "give it with --adapter, and its base model with --model"
                         : "give a model; `infer_gpt2 merge BASE ADAPTER OUT` makes one from an "
                           "adapter and its base model");
}

}  // namespace

std::string find_pretrained(const std::string& flag, const std::string& path) {
  if (is_llmc_model_file(path)) return path;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    const bool file = std::filesystem::exists(path, ignored);
    fail(flag + " " + path +
             (file ? " is not a directory, and does not end in .bin"
                   : " does not exist" + did_you_mean_path(path)),
         "give a directory that transformers saved, a checkpoint of train_gpt2, or a model file of "
         "llm.c (.bin)");
  }
  refuse_adapter(flag, path);
  if (std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored)) {
    require_safetensors(path);
    return path;
  }
  const std::optional<std::filesystem::path> newest = newest_valid_checkpoint(path);
  if (!newest) {
    fail(flag + " " + path + " contains no " + kConfigName + " and no valid checkpoint",
         "give a directory that transformers saved, a checkpoint of train_gpt2 or its --out");
  }
  refuse_adapter(flag, *newest);
  Notice::print(flag + ": " + newest->string() + ", the newest valid checkpoint of " + path);
  return newest->string();
}

std::string find_adapter(const std::string& flag, const std::string& path) {
  if (is_adapter_directory(path)) return path;
  const std::string hint =
      "give a directory that PEFT's save_pretrained wrote, a checkpoint with an adapter, or the "
      "--out of its run";
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    const bool file = std::filesystem::exists(path, ignored);
    fail(flag + " " + path +
             (file ? " is not a directory" : " does not exist" + did_you_mean_path(path)),
         hint);
  }
  const bool is_model = std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored);
  const auto newest = is_model ? std::nullopt : newest_valid_checkpoint(path);
  if (is_model || (newest && !is_adapter_directory(*newest))) {
    fail(flag + " " + (newest ? newest->string() : path) +
             " holds a model, not an adapter: it has "
             "no " +
             kAdapterConfigName,
         hint);
  }
  if (!newest) {
    fail(flag + " " + path + " contains no " + kAdapterConfigName + " and no valid checkpoint",
         hint);
  }
  Notice::print(flag + ": " + newest->string() + ", the newest valid checkpoint of " + path);
  return newest->string();
}

std::string find_adapter_base(const std::string& flag, const std::string& adapter) {
  const AdapterBases bases = read_adapter_bases(adapter);
  std::error_code ignored;
  for (const std::string& base : {bases.config, bases.own}) {
    if (base.empty() || !std::filesystem::exists(base, ignored)) continue;
    Notice::print(flag + ": " + base + ", the base model that " + adapter + " names");
    return base;
  }
  const std::string& name = bases.config.empty() ? bases.own : bases.config;
  fail(flag + " is required: " + adapter +
           (name.empty() ? " names no base model"
                         : " names the base model " + printable(name) + ", which is no directory"),
       "give the directory of the base model with " + flag);
}

bool is_run_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) && !is_llmc_model_file(path) &&
         !is_adapter_directory(path) &&
         !std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored);
}

std::optional<QuantizedFormat> find_quantized_format(const std::filesystem::path& path) {
  if (is_llmc_model_file(path)) return std::nullopt;
  return read_quantized_format(path);
}

void refuse_quantized(const std::string& name) {
  fail(name + " holds INT8 weights of `infer_gpt2 quantize`", "give the float model");
}

std::string find_float_model(const std::string& flag, const std::string& path) {
  const std::string model = find_pretrained(flag, path);
  if (find_quantized_format(model)) refuse_quantized(flag + " " + model);
  return model;
}

HuggingFaceConfig read_pretrained_config(const std::filesystem::path& path) {
  return is_llmc_model_file(path) ? LlmcModelFile(path).config() : read_huggingface_config(path);
}

ModelConfig pretrained_shape(const std::filesystem::path& path, const HuggingFaceConfig& config) {
  const std::filesystem::path file = is_llmc_model_file(path) ? path : path / kConfigName;
  return from_huggingface(config, file.string());
}

ModelConfig read_pretrained_shape(const std::filesystem::path& path) {
  return pretrained_shape(path, read_pretrained_config(path));
}

std::vector<std::int32_t> read_end_tokens(const std::filesystem::path& path,
                                          const HuggingFaceConfig& config,
                                          std::int64_t vocabulary) {
  std::vector<std::int64_t> all;
  if (!is_llmc_model_file(path)) all = read_generation_end_tokens(path);
  all.insert(all.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
  std::vector<std::int32_t> tokens;
  std::string ignored;
  for (const std::int64_t id : all) {
    const auto token = static_cast<std::int32_t>(std::min(id, vocabulary));
    if (id >= vocabulary) {
      constexpr std::int64_t kDefault = 50256;
      if (id != kDefault) ignored += " " + std::to_string(id);
    } else if (std::ranges::find(tokens, token) == tokens.end()) {
      tokens.push_back(token);
    }
  }
  if (!ignored.empty()) {
    Notice::print(path.string() + ": eos_token_id" + ignored + " is ignored: the tokenizer has " +
                  std::to_string(vocabulary) + " tokens");
  }
  return tokens;
}

void check_vocabulary(const std::string& weights, std::int64_t vocabulary,
                      const Tokenizer& tokenizer) {
  const std::int64_t surplus = vocabulary - tokenizer.vocabulary_size();
  if (surplus == 0) return;
  // A tokenizer of far fewer tokens is another one.
  if (surplus > 0 && surplus < tokenizer.vocabulary_size() && tokenizer.has_text()) {
    Notice::print(weights + " has " + std::to_string(surplus) +
                  " embedding rows without a token of the tokenizer " + tokenizer.name() +
                  ": they are never generated");
    return;
  }
  fail(weights + " has a vocabulary of " + std::to_string(vocabulary) + " tokens, the tokenizer " +
           tokenizer.name() + " has " + std::to_string(tokenizer.vocabulary_size()),
       "give the " + quantity("tokenizer") + " that the weights were trained with");
}

}  // namespace llmc
