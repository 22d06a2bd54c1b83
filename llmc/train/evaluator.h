// Evaluates the model: validation loss, evaluation tasks, samples of text.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/terminal.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/eval/tasks.h"
#include "llmc/infer/generate.h"
#include "llmc/infer/sequence_reader.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/stop_agreement.h"
#include "llmc/train/run_position.h"
#include "llmc/train/watch/progress.h"

namespace llmc {

class Evaluator {
 public:
  // All references must outlive the object.
  Evaluator(const RunConfig& config, const RunData& data, EvaluationPass& runner,
            Exchange& exchange, StopAgreement& stop)
      : config_(config), data_(data), runner_(runner), exchange_(exchange), stop_(stop) {
    if (!config.training()) return;
    if (!data.tokenizer->has_text()) {
      skip_samples();
    } else if (config.samples.every > 0 || !config.samples.final_out.empty()) {
      prompt_ = sample_prompt(config.samples.prompt, *data.tokenizer, config.batch.seq_len);
    }
  }

  // Mean loss over the first `batches` batches of the validation windows (0: all of them) after
  // step `step`. Batch i is evaluated by data rank i mod N; the sums of batches are added in their
  // order. The result is meaningless if the run was asked to stop during the call.
  double validation_loss(std::int64_t batches, std::int64_t step) {
    Interruption::set_activity(RunActivity::validation, step);
    const std::int64_t B = config_.batch.batch_size, windows = data_.validation->windows();
    const std::int64_t end = batches > 0 ? std::min(windows, batches * B) : windows;
    // Windows of all ranks at the same time.
    const std::int64_t together = runner_.context().ranks.mesh().data_ranks() * B;
    WorkProgress progress("validation", end);
    double sum = 0;
    for (std::int64_t first = 0; first < end && !stop_.requested(); first += together) {
      sum = add_losses(sum, first, end);
      progress.show(std::min(first + together, end));
    }
    return sum / static_cast<double>(end * config_.batch.seq_len);
  }

  // Reports the validation loss at `position` and stores it there. Does nothing if there is no
  // validation text or if the position already has the loss of this step. If a signal interrupts
  // it, it stores nothing, and the resumed run evaluates at this step.
  void validate(RunPosition& position, Progress& progress) {
    if (!data_.validation) return;
    if (position.validation && position.validation->step == position.step) return;
    const double loss = validation_loss(config_.validation.batches, position.step);
    if (stop_.requested()) return;
    progress.validation(position.step, loss);
    position.validation = {position.step, loss};
    const bool lowest = std::isfinite(loss) && (!position.best || loss < position.best->loss);
    if (position.step > 0 && lowest) position.best = position.validation;
  }

  // Runs the tasks of --eval. Each result is reported and logged with `step`.
  std::vector<EvalResult> run_tasks(std::int64_t step, Progress& progress) {
    Interruption::set_activity(RunActivity::evaluation, step);
    ProgressTimer timer;
    const EvalCallbacks callbacks = {
        .on_batch =
            [&](const EvalTask& task, std::int64_t num_done, std::int64_t total, double seconds) {
              const double fraction = static_cast<double>(num_done) / static_cast<double>(total);
              if (timer.due()) {
                ProgressTimer::show(progress_text(task.name(), fraction, seconds));
              }
              return !stop_.agree();
            },
        .on_result =
            [&](const EvalResult& result) {
              timer = ProgressTimer();
              progress.record(log_record(result, step),
                              "step " + std::to_string(step) + ": " + summary(result));
            }};
    RowScorer scorer(runner_, exchange_);
    return run_eval_tasks(data_.tasks, scorer, callbacks);
  }

  // Prints one sample of --sample-length tokens, or fewer if the context is shorter. Does nothing
  // if tokens have no text.
  void show_sample(std::int64_t step, Progress& progress) {
    if (!data_.tokenizer->has_text()) return;
    Interruption::set_activity(RunActivity::sampling, step);
    const std::int64_t tokens = std::min(config_.samples.length, max_new_tokens());
    const Prompts samples = sample(1, tokens, config_.seed, step);
    if (stop_.requested()) return;
    progress.note(labelled_text("sample", readable_text(data_.tokenizer->decode(samples[0]))));
  }

  // Writes rounds of full sequences, at least --final-samples-tokens tokens, one sequence per line.
  void write_samples(std::int64_t step) {
    Interruption::set_activity(RunActivity::sampling, step);
    const SampleSettings<Resolved>& settings = config_.samples;
    WorkProgress progress("samples", settings.final_tokens);
    std::string text;
    for (std::int64_t round = 0, tokens = 0; tokens < settings.final_tokens && !stop_.requested();
         ++round) {
      const std::uint64_t seed = config_.seed + static_cast<std::uint64_t>(round) + 1;
      for (const auto& sequence : sample(config_.batch.batch_size, max_new_tokens(), seed, step)) {
        text += data_.tokenizer->decode(sequence) + "\n";
      }
      tokens += config_.run_shape().rows();
      progress.show(std::min(tokens, settings.final_tokens));
    }
    if (stop_.requested()) {
      Notice::print("interrupted: " + settings.final_out + " was not written");
      return;
    }
    if (exchange_.first()) write_file(settings.final_out, text);
    Notice::print("samples: " + settings.final_out);
  }

 private:
  // Returns `sum` plus the losses of the batches that ranks evaluate at the same time, from window
  // `first` on. A rank for which no window is left repeats the first batch, which does not count.
  double add_losses(double sum, std::int64_t first, std::int64_t end) {
    const Ranks& ranks = runner_.context().ranks;
    const std::int64_t B = config_.batch.batch_size, own = first + ranks.data_rank() * B;
    const std::int64_t begin = own < end ? own : 0;
    runner_.run({.batch = data_.validation->batch(begin, std::min(B, end - begin))});
    std::vector<float> losses;
    runner_.read_losses(losses);
    double batch_sum = 0;
    for (const float loss : losses) batch_sum += static_cast<double>(loss);
    if (own >= end || !ranks.first_of_data_rank()) batch_sum = 0;
    const std::vector<std::int64_t> all =
        exchange_.all_gather({std::bit_cast<std::int64_t>(batch_sum), stop_.own()});
    std::vector<std::int64_t> stops;
    for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
      sum += std::bit_cast<double>(all[2 * rank]);
      stops.push_back(all[2 * rank + 1]);
    }
    stop_.settle(stops);
    return sum;
  }

  // For token files without a tokenizer.
  void skip_samples() const {
    if (!config_.samples.final_out.empty()) {
      fail_usage("--final-samples-out needs a tokenizer: the text of the tokens is not known",
                 "give the --tokenizer that the token files were made with");
    }
    if (config_.samples.every == 0) return;
    Notice::print("samples are skipped: without --tokenizer the text of the tokens is not known");
  }

  // Number of tokens that fit after the prompt of a sample.
  std::int64_t max_new_tokens() const { return config_.batch.seq_len - std::ssize(prompt_); }

  // Returns `count` sequences of the prompt and `tokens` sampled tokens; they are shorter if a
  // signal arrives.
  Prompts sample(std::int64_t count, std::int64_t tokens, std::uint64_t seed, std::int64_t step) {
    Prompts samples(static_cast<std::size_t>(count), prompt_);
    SequenceReader reader(runner_, count);
    generate(reader, Prompts(samples), {.tokens = tokens, .seed = seed, .step = step},
             [&](std::int64_t b, std::int32_t token) {
               samples[static_cast<std::size_t>(b)].push_back(token);
               return !(b == 0 ? stop_.agree() : stop_.requested());
             });
    return samples;
  }

  // Returns the tokens that samples start with, for a model that sees T_max tokens: those of
  // `prompt`. If that is empty: a line break, or if the tokenizer has none, end of text or its
  // first token.
  static std::vector<std::int32_t> sample_prompt(const std::string& prompt,
                                                 const Tokenizer& tokenizer, std::int64_t T_max) {
    const std::string text = prompt.empty() ? "\n" : prompt;
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (ids.empty() && prompt.empty()) ids = {tokenizer.end_of_text().value_or(0)};
    if (ids.empty()) {
      fail_usage("--prompt '" + text + "' has no tokens", "give a text with at least one token");
    }
    if (std::ssize(ids) > T_max - 1) {
      fail_usage("--prompt has " + std::to_string(ids.size()) + " tokens",
                 "shorten it to at most --seq-len - 1 = " + std::to_string(T_max - 1));
    }
    return ids;
  }

  const RunConfig& config_;
  const RunData& data_;
  EvaluationPass& runner_;
  Exchange& exchange_;
  StopAgreement& stop_;
  std::vector<std::int32_t> prompt_;  // start of every sample
};

}  // namespace llmc
