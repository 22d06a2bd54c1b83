#include "llmc/models/pretrained.h"

#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/llmc_model_file.h"

namespace llmc {

HuggingFaceConfig to_huggingface(const ModelConfig& config,
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

ModelConfig from_huggingface(const HuggingFaceConfig& config, const std::string& directory) {
  if (config.layer_norm_epsilon != 1e-5) {
    fail(directory + ": layer_norm_epsilon is " + std::to_string(config.layer_norm_epsilon),
         "use a model with GPT-2's value, 1e-05");
  }
  ModelConfig out;
  out.vocabulary = config.vocab_size;
  out.context = config.n_positions;
  out.layers = config.n_layer;
  out.heads = config.n_head;
  out.channels = config.n_embd;
  check_config(out);
  return out;
}

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
  if (std::filesystem::exists(std::filesystem::path(path) / kConfigName, ignored)) return path;
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

HuggingFaceConfig read_pretrained_config(const std::filesystem::path& path) {
  return is_llmc_model_file(path) ? LlmcModelFile(path).config() : read_huggingface_config(path);
}

void check_vocabulary(const std::string& weights, std::int64_t vocabulary,
                      const Tokenizer& tokenizer) {
  if (tokenizer.vocabulary_size() == vocabulary) return;
  fail(weights + " has a vocabulary of " + std::to_string(vocabulary) + " tokens, the tokenizer " +
           tokenizer.name() + " has " + std::to_string(tokenizer.vocabulary_size()),
       "give the " + quantity("tokenizer") + " that the weights were trained with");
}

}  // namespace llmc
