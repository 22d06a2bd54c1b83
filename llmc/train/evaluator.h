// Evaluates the model: validation and test samples, evaluation tasks, samples of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/eval/report.h"
#include "llmc/infer/generate.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/train/evaluation.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/stop_agreement.h"
#include "llmc/train/run_position.h"
#include "llmc/train/watch/progress.h"

namespace llmc {

class Evaluator {
 public:
  // All references must outlive the object.
  Evaluator(const RunConfig& config, const RunData& data, EvaluationPass& runner,
            Exchange& exchange, StopAgreement& stop);

  // The mean loss over the first `batches` batches of the samples (0: all of them) after step
  // `step`, and for a classifier its predictions. Batch i is evaluated by data rank i mod N; the
  // sums of batches are added in their order. The result is meaningless if the run was asked to
  // stop during the call.
  Evaluation evaluate(const EvaluationSamples& samples, std::int64_t batches, std::int64_t step);

  // Reports the evaluation of the validation samples at `position` and stores it there. Does
  // nothing if there are none or if the position already has the loss of this step. If a signal
  // interrupts it, it stores nothing, and the resumed run evaluates at this step.
  void validate(RunPosition& position, Progress& progress);

  // Evaluates the samples of --test and reports the result; empty if there are none.
  std::optional<Evaluation> test(std::int64_t step, Progress& progress);

  // Runs the tasks of --eval. Each result is reported and logged with `step`.
  std::vector<EvalResult> run_tasks(std::int64_t step, Progress& progress);

  // Prints one sample of --sample-length tokens, or fewer if the context is shorter. Does nothing
  // if tokens have no text.
  void show_sample(std::int64_t step, Progress& progress);

  // Writes rounds of full sequences, at least --final-samples-tokens tokens, one sequence per line.
  void write_samples(std::int64_t step);

 private:
  // Adds the batches that ranks evaluate at the same time, from sample `first` on. A rank for which
  // no sample is left repeats the first batch, which does not count.
  void add_batches(Evaluation& sums, const EvaluationSamples& samples, std::int64_t first,
                   std::int64_t end);

  // For token files without a tokenizer.
  void skip_samples() const;

  // Number of tokens that fit after the prompt of a sample.
  std::int64_t max_new_tokens() const;

  // Returns `count` sequences of the prompt and `tokens` sampled tokens; they are shorter if a
  // signal arrives.
  Prompts sample(std::int64_t count, std::int64_t tokens, std::uint64_t seed, std::int64_t step);

  // Returns the tokens that samples start with, for a model that sees T_max tokens: those of
  // `prompt`. If that is empty: a line break, or if the tokenizer has none, end of text or its
  // first token.
  static std::vector<std::int32_t> sample_prompt(const std::string& prompt,
                                                 const Tokenizer& tokenizer, std::int64_t T_max);

  const RunConfig& config_;
  const RunData& data_;
  EvaluationPass& runner_;
  Exchange& exchange_;
  StopAgreement& stop_;
  std::vector<std::int32_t> prompt_;  // start of every sample
};

}  // namespace llmc
