#include "llmc/models/pretrained.h"

#include <algorithm>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/generation_config.h"
#include "llmc/io/checkpoint/llmc_model_file.h"

namespace llmc {

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
  if (std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored)) {
    require_safetensors(path);
    return path;
  }
  const std::optional<std::filesystem::path> newest = newest_valid_checkpoint(path);
  if (!newest) {
    fail(flag + " " + path + " contains no " + kConfigName + " and no valid checkpoint",
         "give a directory that transformers saved, a checkpoint of train_gpt2 or its --out");
  }
  Notice::print(flag + ": " + newest->string() + ", the newest valid checkpoint of " + path);
  return newest->string();
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

std::string find_adapter(const std::string& flag, const std::string& path) {
  if (is_adapter_directory(path)) return path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::optional<std::filesystem::path> newest = newest_valid_checkpoint(path);
    if (newest && is_adapter_directory(*newest)) {
      Notice::print(flag + ": " + newest->string() + ", the newest valid checkpoint of " + path);
      return newest->string();
    }
  }
  const bool exists = std::filesystem::exists(path, ignored);
  fail(flag + " " + path +
           (exists
                ? std::string(" contains no ") + kAdapterConfigName + " and no checkpoint with one"
                : " does not exist" + did_you_mean_path(path)),
       "give a directory of PEFT, or a checkpoint or the --out of a run with adapters");
}

std::string base_of_adapter(const std::string& flag, const std::filesystem::path& adapter) {
  const std::filesystem::path file = adapter / kAdapterConfigName;
  const std::string base = PeftSettings(read_file(file), file.string()).base();
  std::error_code ignored;
  if (!base.empty() && std::filesystem::exists(base, ignored)) {
    Notice::print(flag + ": " + base + ", the model that " + adapter.string() + " names");
    return find_float_model(flag, base);
  }
  fail(adapter.string() + (base.empty()
                               ? " names no model"
                               : " names the model " + base + ", which is not on this machine"),
       "give the model with " + flag);
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
