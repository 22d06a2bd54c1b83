// A model in files: a directory that transformers saved, a checkpoint, a directory with INT8
// weights or an llm.c model file. Finds it and reads its config; load_weights.h loads its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/huggingface_shape.h"
#include "llmc/config/model_config.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Returns the path of the weights that `path` names: a Hugging Face directory, a checkpoint or an
// llm.c model file itself; for the --out directory of a run, its newest valid checkpoint, which is
// reported on stderr. Throws for anything else, such as an adapter; the error names `flag`.
std::string find_pretrained(const std::string& flag, const std::string& path);

// Whether a path is a directory that can only be the --out of a run: it has neither a model nor an
// adapter itself.
bool is_run_directory(const std::string& path);

// How the weights of a directory are INT8; nothing for float weights and llm.c's model files.
std::optional<QuantizedFormat> find_quantized_format(const std::filesystem::path& path);

// Like find_pretrained(), for an adapter: its directory, or the newest valid checkpoint of its run.
std::string find_adapter(const std::string& flag, const std::string& path);

// The base model that an adapter names, which is reported on stderr. Throws if it names none, or
// one that is not on this machine; `flag` is the one that would name it.
std::string find_adapter_base(const std::string& flag, const std::string& adapter);

// Throws that a model is INT8. Errors call it `name`, such as "--base DIR".
[[noreturn]] void refuse_quantized(const std::string& name);

// Like find_pretrained(), for a model that must have float weights.
std::string find_float_model(const std::string& flag, const std::string& path);

// Reads the config of a model from a directory that save_pretrained or this engine wrote, or from
// an llm.c model file (.bin).
HuggingFaceConfig read_pretrained_config(const std::filesystem::path& path);

// The shape of the model at `path` with this config. Throws if the engine does not support it.
ModelConfig pretrained_shape(const std::filesystem::path& path, const HuggingFaceConfig& config);

// The same for the config of the model at `path`.
ModelConfig read_pretrained_shape(const std::filesystem::path& path);

// The tokens that end a text: eos_token_id of generation_config.json, then that of `config`, each
// once. Ids from `vocabulary` on are not among them; a notice names them, except 50256, the default
// of transformers.
std::vector<std::int32_t> read_end_tokens(const std::filesystem::path& path,
                                          const HuggingFaceConfig& config, std::int64_t vocabulary);

// Throws unless the model has an embedding row for each token of the tokenizer. It may have more
// rows, as a padded vocabulary has, but fewer than twice as many; a notice states their number.
// Errors name the model's origin, `weights`, such as "--model DIR".
void check_vocabulary(const std::string& weights, std::int64_t vocabulary,
                      const Tokenizer& tokenizer);

}  // namespace llmc
