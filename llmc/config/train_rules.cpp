#include "llmc/config/train_rules.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "llmc/base/error.h"
#include "llmc/config/rank_rules.h"
#include "llmc/device/math.h"

namespace llmc {

void check_sequences(const TrainResolution& r) {
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  if (T > r.config.model.context) {
    fail_usage("--seq-len " + std::to_string(T) + " is longer than the model's context of " +
                   std::to_string(r.config.model.context),
               "use at most --context");
  }
  constexpr std::int64_t kMaxSequences = 65535;  // attention: a grid has at most so many in y or z
  if (B > kMaxSequences) {
    fail_usage(
        "--batch-size " + std::to_string(B) + " is too large",
        "use at most " + std::to_string(kMaxSequences) + "; --grad-accum makes steps larger");
  }
  constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1;
  if (B <= kMaxRows / T) return;
  fail_usage("--batch-size " + std::to_string(B) + " is too large for sequences of " +
                 std::to_string(T) + " tokens",
             "use at most " + std::to_string(kMaxRows / T) + "; --grad-accum makes steps larger");
}

std::int64_t default_grad_accum(const TrainResolution& r) {
  const std::int64_t pp = pipeline_ranks_of(r);
  if (!r.facts.default_step_tokens) return pp;
  const std::int64_t micro = r.config.batch.batch_size * r.config.batch.seq_len * data_ranks_of(r);
  return round_up(std::max<std::int64_t>(1, (*r.facts.default_step_tokens + micro / 2) / micro),
                  pp);
}

namespace {

// "use one of 1, 2, 4 ranks, or use one of 1, 2 as --batch-size": what divides the tokens of a step
// if the other numbers stay. Empty if nothing does.
std::string dividing_numbers(const TrainResolution& r, std::int64_t total) {
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  const std::int64_t ranks = data_ranks_of(r);
  std::string text;
  if (total % (B * T) == 0) {
    text += divisors_hint(total / (B * T));
    text += divisor_flags(r).empty() ? " ranks" : " data-parallel ranks";
  }
  if (total % (T * ranks) == 0) {
    text += (text.empty() ? "" : ", or ") + divisors_hint(total / (T * ranks)) + " as --batch-size";
  }
  return text;
}

// Throws that a resumed run cannot keep the tokens per step of its checkpoint.
[[noreturn]] void refuse_recorded_total(const TrainResolution& r, std::int64_t total) {
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  const std::int64_t ranks = data_ranks_of(r);
  const bool plain = divisor_flags(r).empty();
  const std::string numbers = dividing_numbers(r, total);
  fail_usage("the run has --total-batch-tokens " + std::to_string(total) +
                 ", which is not a multiple of --batch-size x --seq-len x " +
                 (plain ? "ranks = " : "data-parallel ranks = ") + std::to_string(B) + " x " +
                 std::to_string(T) + " x " + std::to_string(ranks) + " = " +
                 std::to_string(B * T * ranks),
             numbers + (numbers.empty() ? "" : ", or ") +
                 "give --grad-accum or --total-batch-tokens for steps of another size");
}

}  // namespace

std::optional<SettingValue> implied_total_tokens(const TrainResolution& r) {
  if (!r.request.batch.grad_accum) return std::nullopt;
  return SettingValue(std::int64_t{0});
}

std::optional<SettingValue> implied_grad_accum(const TrainResolution& r) {
  const std::optional<std::int64_t> typed = r.request.batch.total_batch_tokens;
  const auto total = typed ? typed : r.facts.preset.batch.total_batch_tokens;
  if (!total) return std::nullopt;
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  const std::int64_t ranks = data_ranks_of(r), micro = B * T * ranks;
  if (*total % micro == 0) return *total / micro;
  if (!typed) refuse_recorded_total(r, *total);
  const bool several = ranks > 1;
  const std::string name = divisor_flags(r).empty() ? "ranks" : "data-parallel ranks";
  const std::string numbers = several ? dividing_numbers(r, *total) : "";
  fail_usage("--total-batch-tokens " + std::to_string(*total) +
                 " is not a multiple of --batch-size x --seq-len" + (several ? " x " + name : "") +
                 " = " + std::to_string(B) + " x " + std::to_string(T) +
                 (several ? " x " + std::to_string(ranks) : "") + " = " + std::to_string(micro),
             "use a multiple, such as " +
                 std::to_string(std::max<std::int64_t>(1, *total / micro) * micro) +
                 (numbers.empty() ? "" : ", or ") + numbers);
}

void check_step_tokens(const TrainResolution& r) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
  const std::int64_t rows = r.config.batch.batch_size * r.config.batch.seq_len * data_ranks_of(r);
  if (r.config.batch.grad_accum <= kMaxTokens / rows) return;
  fail_usage("--grad-accum " + std::to_string(r.config.batch.grad_accum) +
                 " makes steps of more than 2^40 tokens",
             "use at most " + std::to_string(kMaxTokens / rows) + " for this micro-batch");
}

std::int64_t steps_of_epochs(double epochs, std::int64_t windows, std::int64_t global_batch) {
  constexpr double kRounding = 1e-12;  // 0.1 epochs of 30 windows are 3 sequences, not 4
  const double samples = std::ceil(epochs * static_cast<double>(windows) * (1 - kRounding));
  if (samples > 0x1p62)
    fail_usage("--epochs is too large: the run would have more than 2^62 sequences");
  return ceil_div(static_cast<std::int64_t>(samples), global_batch);
}

std::optional<SettingValue> implied_steps(const TrainResolution& r) {
  if (!r.request.schedule.epochs || !r.facts.windows) return std::nullopt;
  return steps_of_epochs(*r.request.schedule.epochs, *r.facts.windows, r.config.global_batch());
}

std::int64_t step_interval(const TrainResolution& r, std::int64_t count) {
  return std::max<std::int64_t>(1, r.config.schedule.steps / count);
}

std::optional<SettingValue> implied_dropout(const TrainResolution& r) {
  if (!r.request.dropout.all) return std::nullopt;
  return *r.request.dropout.all;
}

std::optional<SettingValue> implied_stride(const TrainResolution& r) {
  const std::int64_t T = r.config.batch.seq_len;
  if (r.facts.preset.evaluation.stride.value_or(0) <= T) return std::nullopt;
  return (T + 1) / 2;
}

void check_keep_best(const TrainResolution& r) {
  if (!r.request.output.keep_best.value_or(false) || r.config.validation.every > 0) return;
  fail_usage("--keep-best has no effect with --eval-every 0: no validation losses are computed",
             "leave it out, or give a positive --eval-every");
}

void check_loss_scale(const TrainResolution& r) {
  int exponent = 0;
  if (std::frexp(r.config.precision.loss_scale, &exponent) == 0.5) return;
  fail_usage(
      "--loss-scale " + std::to_string(r.config.precision.loss_scale) + " is not a power of two",
      "use 1, 2, 4 ... or 16777216, which scale without rounding");
}

}  // namespace llmc
