// The texts of a run, cut into windows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "llmc/io/batches.h"
#include "llmc/io/token_file.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/train_settings.h"
#include "llmc/train/eval_tasks.h"
#include "llmc/train/run_plan.h"

namespace llmc {

// Training text is absent when a run only evaluates; validation text too where tasks are all it
// does.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ShuffledWindows> train;
  std::optional<ConsecutiveWindows> validation;
  EvalTasks tasks;
};

// The windows of texts that are tokens already.
inline void cut_windows(RunData& data, TokenData train, TokenData validation,
                        const std::string& train_name, const std::string& validation_name,
                        const TrainSettings& settings, const RunPlan& plan) {
  const std::int64_t T = plan.shape.T;
  if (plan.shape.training) data.train.emplace(std::move(train), T, settings.seed, train_name);
  data.validation.emplace(std::move(validation), T, validation_name);
}

// Reads --eval, --train and --val. Without --val the end of --train is kept for validation.
inline RunData load_run_data(const TrainSettings& settings, const RunPlan& plan,
                             std::unique_ptr<Tokenizer> tokenizer) {
  RunData data;
  data.tokenizer = std::move(tokenizer);
  data.tasks = make_eval_tasks(settings, *data.tokenizer, plan.shape.T);
  if (settings.train.empty() && settings.val.empty()) return data;
  TokenData train, validation;
  if (!settings.train.empty()) train = load_tokens(settings.train, *data.tokenizer);
  if (!settings.val.empty()) {
    validation = load_tokens(settings.val, *data.tokenizer);
  } else {
    TrainValidationSplit split = split_validation(train, plan.shape.T, settings.train);
    train = std::move(split.train);
    validation = std::move(split.validation);
  }
  cut_windows(data, std::move(train), std::move(validation), settings.train,
              settings.val.empty() ? "the end of " + settings.train : settings.val, settings, plan);
  return data;
}

// A model knows exactly the tokens of its tokenizer.
inline void check_vocabulary(const Gpt2Config& config, const Tokenizer& tokenizer,
                             const TrainSettings& settings) {
  if (config.vocabulary == tokenizer.vocabulary_size()) return;
  fail("--init-from " + settings.init_from + " has a vocabulary of " +
           std::to_string(config.vocabulary) + " tokens, --tokenizer " + settings.tokenizer +
           " has " + std::to_string(tokenizer.vocabulary_size()),
       "give the --tokenizer that the weights were trained with");
}

}  // namespace llmc
