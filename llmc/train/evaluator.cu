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

Evaluation Evaluator::evaluate(const EvaluationSamples& samples, std::int64_t batches,
                               std::int64_t step) {
  Interruption::set_activity(RunActivity::validation, step);
  const std::int64_t B = config_.batch.batch_size, count = samples.count();
  const std::int64_t end = batches > 0 ? std::min(count, batches * B) : count;
  // Samples of all ranks at the same time.
  const std::int64_t together = runner_.context().ranks.mesh().data_ranks() * B;
  WorkProgress progress("validation", end);
  Evaluation sums;
  if (config_.shape.labels > 0) sums.confusion.emplace(config_.shape.labels);
  for (std::int64_t first = 0; first < end && !stop_.requested(); first += together) {
    add_batches(sums, samples, first, end);
    progress.show(std::min(first + together, end));
  }
  return sums;
}

void Evaluator::validate(RunPosition& position, Progress& progress) {
  if (!data_.validation) return;
  if (position.validation && position.validation->step == position.step) return;
  const Evaluation result = evaluate(*data_.validation, config_.validation.batches, position.step);
  if (stop_.requested()) return;
  progress.record(evaluation_record("val", position.step, result, data_.label_names),
                  evaluation_text("step " + std::to_string(position.step) + ": validation", result,
                                  data_.label_names));
  position.validation = result.measured(position.step);
  const bool is_best = std::isfinite(position.validation->loss) &&
                       (!position.best || is_better(*position.validation, *position.best,
                                                    config_.output.keep_best_by));
  if (position.step > 0 && is_best) position.best = position.validation;
}

std::optional<Evaluation> Evaluator::test(std::int64_t step, Progress& progress) {
  if (!data_.test) return std::nullopt;
  const Evaluation result = evaluate(*data_.test, 0, step);
  if (stop_.requested()) return std::nullopt;
  progress.log(evaluation_record("test", step, result, data_.label_names));
  return result;
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

namespace {

// The rows of a batch that have a target.
std::vector<std::int64_t> rows_with_targets(const Batch& batch) {
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < batch.targets.size(); ++row) {
    if (batch.targets[row] >= 0) rows.push_back(static_cast<std::int64_t>(row));
  }
  return rows;
}

// For each of the rows its target and the class with the largest logit, for `size` rows; -1 beyond
// their number. All ranks of a model call this together.
std::vector<std::int64_t> predictions(EvaluationPass& runner, const Batch& batch,
                                      const std::vector<std::int64_t>& rows, std::int64_t size) {
  std::vector<float> logits;
  runner.read_logits_of(rows, logits);
  const std::int64_t classes = runner.config().num_logits();
  std::vector<std::int64_t> result(static_cast<std::size_t>(2 * size), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(i) * classes;
    result[2 * i] = batch.targets[static_cast<std::size_t>(rows[i])];
    result[2 * i + 1] = std::max_element(first, first + classes) - first;
  }
  return result;
}

}  // namespace

void Evaluator::add_batches(Evaluation& sums, const EvaluationSamples& samples, std::int64_t first,
                            std::int64_t end) {
  const Ranks& ranks = runner_.context().ranks;
  const std::int64_t B = config_.batch.batch_size, own = first + ranks.data_rank() * B;
  const std::int64_t begin = own < end ? own : 0;
  const Batch batch = samples.batch(begin, std::min(B, end - begin));
  const std::vector<std::int64_t> rows = rows_with_targets(batch);
  runner_.run({.batch = batch});
  std::vector<float> losses;
  runner_.read_losses(losses);
  double batch_sum = 0;
  for (const float loss : losses) batch_sum += static_cast<double>(loss);
  std::vector<std::int64_t> own_numbers = {stop_.own(), std::bit_cast<std::int64_t>(batch_sum),
                                           std::ssize(rows)};
  if (sums.confusion) {
    const std::vector<std::int64_t> more = predictions(runner_, batch, rows, B);
    own_numbers.insert(own_numbers.end(), more.begin(), more.end());
  }
  const bool counts = own < end && ranks.first_of_data_rank();
  if (!counts) std::fill(own_numbers.begin() + 1, own_numbers.end(), -1);
  const std::vector<std::int64_t> all = exchange_.all_gather(own_numbers);
  std::vector<std::int64_t> stops;
  for (std::size_t rank = 0; rank < all.size(); rank += own_numbers.size()) {
    stops.push_back(all[rank]);
    if (all[rank + 2] < 0) continue;
    sums.sum += std::bit_cast<double>(all[rank + 1]);
    sums.targets += all[rank + 2];
    for (std::size_t i = 3; i < own_numbers.size() && all[rank + i] >= 0; i += 2) {
      sums.confusion->add(all[rank + i], all[rank + i + 1]);
    }
  }
  stop_.settle(stops);
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
