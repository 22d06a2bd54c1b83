// The texts that make a checkpoint a model others can use: what generate() starts from, a model
// card, and the tokenizer's files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/checkpoint/checkpointing.h"
#include "llmc/train/run/run_plan.h"

namespace llmc {

inline std::string optimizer_text(const TrainSettings& settings, const RunPlan& plan) {
  char text[256];
  std::snprintf(text, sizeof text,
                "AdamW, betas %g and %g, eps %g, weight decay %g, clipping at %g; learning rate at "
                "most %g, warm-up of %lld steps, %s to step %lld",
                settings.beta1, settings.beta2, settings.eps, plan.weight_decay, settings.clip,
                plan.schedule.peak, static_cast<long long>(plan.schedule.warmup),
                settings.schedule.c_str(), static_cast<long long>(plan.schedule.steps));
  return text;
}

// Files are named without their folders, which are nobody's business where a model is published.
inline ModelCard make_model_card(const TrainSettings& settings, const RunPlan& plan,
                                 const HuggingFaceConfig& config, std::int64_t parameters,
                                 const RunPosition& position, std::optional<double> train_loss) {
  const auto name_of = [](std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return std::filesystem::path(path).filename().string();
  };
  const auto names_of = [&](const std::string& sources) {
    std::string names;
    for (const std::string& path : parse_source_list(sources, "--val", false).names) {
      names += (names.empty() ? "" : ",") + name_of(path);
    }
    return names;
  };
  ModelCard card;
  card.name = checkpoint_name(position.step);
  card.config = config;
  card.parameters = parameters;
  card.tokenizer =
      settings.train.empty() ? "words of the toy language" : name_of(settings.tokenizer);
  card.started_from = name_of(settings.init_from);
  card.train = position.train;
  card.validation = "the end of " + position.train;
  if (!settings.val.empty()) card.validation = names_of(settings.val);
  if (settings.train.empty()) card.validation = "the toy language, another seed";
  card.step = position.step;
  card.tokens = position.tokens;
  card.tokens_per_step = plan.tokens_per_step();
  card.arithmetic =
      settings.dtype == "fp32" ? "fp32" : settings.dtype + ", with fp32 masters and sums";
  card.optimizer = optimizer_text(settings, plan);
  if (train_loss) card.train_loss = {position.step, *train_loss};
  card.validation_loss = position.validation;
  return card;
}

// Everything of a checkpoint that is neither tensors nor config.json nor the manifest.
inline std::vector<TextFile> checkpoint_texts(ModelCard card, const Tokenizer& tokenizer) {
  std::vector<TextFile> texts = tokenizer.files();
  card.tokenizer_files = !texts.empty();
  texts.push_back({kGenerationConfigName, generation_config_text(card.config)});
  texts.push_back({kModelCardName, model_card_text(card)});
  return texts;
}

}  // namespace llmc
