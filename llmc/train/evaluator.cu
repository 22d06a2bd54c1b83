#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/resolved.h"
#include "llmc/base/terminal.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/ranks.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/eval/task.h"
#include "llmc/eval/tasks.h"
#include "llmc/infer/sequence_reader.h"
#include "llmc/train/evaluator.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/interruption_text.h"

namespace llmc {

Evaluator::Evaluator(const RunConfig& config, const RunData& data, EvaluationPass& runner,
                     Exchange& exchange, StopAgreement& stop)
    : config_(config), data_(data), runner_(runner), exchange_(exchange), stop_(stop) {
  if (!config.training()) return;
  if (!data.tokenizer->has_text()) {
    skip_samples();
  } else if (config.samples.every > 0 || !config.samples.final_out.empty()) {
    prompt_ = sample_prompt(config.samples.prompt, *data.tokenizer, config.batch.seq_len);
  }
}

double Evaluator::validation_loss(std::int64_t batches, std::int64_t step) {
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

void Evaluator::validate(RunPosition& position, Progress& progress) {
  if (!data_.validation) return;
  if (position.validation && position.validation->step == position.step) return;
  const double loss = validation_loss(config_.validation.batches, position.step);
  if (stop_.requested()) return;
  progress.validation(position.step, loss);
  position.validation = {position.step, loss};
  const bool lowest = std::isfinite(loss) && (!position.best || loss < position.best->loss);
  if (position.step > 0 && lowest) position.best = position.validation;
}

std::vector<EvalResult> Evaluator::run_tasks(std::int64_t step, Progress& progress) {
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

void Evaluator::show_sample(std::int64_t step, Progress& progress) {
  if (!data_.tokenizer->has_text()) return;
  Interruption::set_activity(RunActivity::sampling, step);
  const std::int64_t tokens = std::min(config_.samples.length, max_new_tokens());
  const Prompts samples = sample(1, tokens, config_.seed, step);
  if (stop_.requested()) return;
  progress.note(labelled_text("sample", readable_text(data_.tokenizer->decode(samples[0]))));
}

void Evaluator::write_samples(std::int64_t step) {
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

double Evaluator::add_losses(double sum, std::int64_t first, std::int64_t end) {
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

void Evaluator::skip_samples() const {
  if (!config_.samples.final_out.empty()) {
    fail_usage("--final-samples-out needs a tokenizer: the text of the tokens is not known",
               "give the --tokenizer that the token files were made with");
  }
  if (config_.samples.every == 0) return;
  Notice::print("samples are skipped: without --tokenizer the text of the tokens is not known");
}

std::int64_t Evaluator::max_new_tokens() const {
  return config_.batch.seq_len - std::ssize(prompt_);
}

Prompts Evaluator::sample(std::int64_t count, std::int64_t tokens, std::uint64_t seed,
                          std::int64_t step) {
  Prompts samples(static_cast<std::size_t>(count), prompt_);
  SequenceReader reader(runner_, count);
  generate(reader, Prompts(samples),
           {.tokens = tokens,
            .seed = seed,
            .step = step,
            .vocabulary = data_.tokenizer->vocabulary_size()},
           [&](std::int64_t b, std::int32_t token) {
             samples[static_cast<std::size_t>(b)].push_back(token);
             return !(b == 0 ? stop_.agree() : stop_.requested());
           });
  return samples;
}

std::vector<std::int32_t> Evaluator::sample_prompt(const std::string& prompt,
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

}  // namespace llmc
