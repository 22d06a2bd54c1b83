// The text files that make a checkpoint ready to publish: the settings of transformers' generate(),
// a model card, and the tokenizer's files.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/run_position.h"

namespace llmc {

// File names only, no directories: the card is published with the model.
ModelCard make_model_card(const RunConfig& run, const HuggingFaceConfig& config,
                          std::int64_t parameters, const RunPosition& position,
                          std::optional<double> train_loss);

// All files of a checkpoint except tensors, config.json and the manifest.
std::vector<TextFile> checkpoint_texts(ModelCard card, const Tokenizer& tokenizer);

// Adds the texts of an adapter of a model of `num_blocks` blocks, whose card replaces the model's.
// `name`: the name of the directory.
void add_adapter_texts(std::vector<TextFile>& texts, const AdapterConfig& adapter,
                       std::int64_t num_blocks, const std::string& name);

}  // namespace llmc
