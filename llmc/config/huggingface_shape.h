// The shape of a model in a config.json of transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/config/model_config.h"
#include "llmc/io/checkpoint/huggingface.h"

namespace llmc {

HuggingFaceConfig to_huggingface(const ModelConfig& config,
                                 std::optional<std::int64_t> end_of_text);

// Throws if the engine does not support a model of this shape. Errors name `file`, from which the
// config was read.
ModelConfig from_huggingface(const HuggingFaceConfig& config, const std::string& file);

}  // namespace llmc
