// Files that describe a model beyond its shape: README.md, the card that model hubs show, and
// generation_config.json, which sets the defaults of transformers' generate(). A card contains only
// known facts. Licence and language are unknown, so the card names neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/generation_config.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/huggingface.h"

namespace llmc {

inline constexpr const char* kModelCardName = "README.md";

// A loss on a text, in nats per token.
struct MeasuredLoss {
  std::int64_t step = 0;  // step after which it was measured
  double loss = 0;
  std::optional<double> macro_f1 = {};  // of a classifier
};

struct ModelCard {
  std::string name;  // heading: the name of the directory
  HuggingFaceConfig config;
  std::int64_t parameters = 0;
  std::string tokenizer;         // value of --tokenizer
  bool tokenizer_files = false;  // whether the directory contains the tokenizer's files
  std::string initial_weights;   // origin of the weights; empty: random initialization
  std::string train, validation;
  std::int64_t step = 0, tokens = 0, tokens_per_step = 0;
  std::string arithmetic;  // dtype of the training run
  std::string optimizer;   // optimizer and its settings
  std::optional<MeasuredLoss> train_loss, validation_loss;
  std::optional<MeasuredLoss> best_loss;  // lowest validation loss
  TrainingHistory history;                // if it has several stretches, the card lists them
};

// A prompt of up to half the context leaves room for max_new_tokens. (max_length would cause a
// warning whenever a caller passes max_new_tokens.)
std::string generation_config_text(const HuggingFaceConfig& config);

namespace model_card_detail {

// Returns a text as Markdown code for a table cell, on one line.
std::string code(std::string_view text);

std::string table(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace model_card_detail

// Markdown, with the front matter that model hubs read.
std::string model_card_text(const ModelCard& card);

}  // namespace llmc
