// Rules and checks of the settings of a run that depend on each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <variant>

#include "llmc/base/error.h"
#include "llmc/config/gpt2_config.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/math.h"

namespace llmc {

using TrainResolution = Resolution<TrainProgram>;

// Returns the size of the model that its weights or --model imply, if one of them is given.
inline std::optional<SettingValue> implied_size(const TrainResolution& r,
                                                std::int64_t Gpt2Config::*size) {
  if (r.facts.weights) return *r.facts.weights.*size;
  if (!r.config.model.name.empty()) return config_from_name(r.config.model.name).*size;
  return std::nullopt;
}

// The shape of the model. The settings of the model must be known.
inline Gpt2Config model_shape(const RunConfig& config, const RunFacts& facts) {
  return {.vocabulary = facts.weights ? facts.weights->vocabulary : facts.default_shape.vocabulary,
          .context = config.model.context,
          .layers = config.model.layers,
          .heads = config.model.heads,
          .channels = config.model.channels};
}

// Weights from a file define the model's sizes: a flag with another size is an error. This includes
// a shorter --context; --seq-len sets the length of shorter sequences.
inline void check_agreement(const TrainResolution& r) {
  const Gpt2Config& weights = *r.facts.weights;
  const ModelSettings<std::optional>& typed = r.request.model;
  const auto require_equal = [&](const std::string& flag,
                                 const std::optional<std::int64_t>& typed_size, std::int64_t size) {
    if (typed_size.value_or(size) == size) return;
    fail(flag + " " + std::to_string(*typed_size) + " does not agree with " + std::to_string(size) +
             " in " + r.facts.weights_path,
         "leave the flag out: the weights set the model's sizes");
  };
  require_equal("--layers", typed.layers, weights.layers);
  require_equal("--heads", typed.heads, weights.heads);
  require_equal("--channels", typed.channels, weights.channels);
  require_equal("--context", typed.context, weights.context);
  if (!typed.name) return;
  const Gpt2Config named_shape = config_from_name(*typed.name);
  if (!typed.layers) {
    require_equal("--model " + *typed.name + " with layers", named_shape.layers, weights.layers);
  }
  if (!typed.channels) {
    require_equal("--model " + *typed.name + " with channels", named_shape.channels,
                  weights.channels);
  }
}

inline void check_model(const TrainResolution& r) {
  if (r.facts.weights) return check_agreement(r);
  check_config(model_shape(r.config, r.facts));
}

// The number of tensor ranks that --tp implies in a resumed run: the largest one with which the
// recorded --tp and the present number of ranks can be divided.
inline std::optional<SettingValue> fitting_tensor_ranks(const TrainResolution& r) {
  if (!r.facts.preset.ranks.tp) return std::nullopt;
  return std::gcd(*r.facts.preset.ranks.tp, r.facts.ranks);
}

// The value of --tp, for rows above its own too.
inline std::int64_t tensor_ranks_of(const TrainResolution& r) {
  if (r.request.ranks.tp) return *r.request.ranks.tp;
  return std::get<std::int64_t>(fitting_tensor_ranks(r).value_or(std::int64_t{1}));
}

// "use one of 1, 2, 4": the divisors of `number`, of those that divide `other` too.
inline std::string divisors_hint(std::int64_t number, std::int64_t other = 0) {
  std::string text;
  for (std::int64_t n = 1; n <= number; ++n) {
    if (number % n != 0 || other % n != 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(n);
  }
  return (text == "1" ? "use " : "use one of ") + text;
}

// "--tp 4 does not divide the 6 ranks"
inline std::string divisor_problem(const char* flag, std::int64_t value, std::int64_t number,
                                   const std::string& name) {
  return flag + (" " + std::to_string(value)) + " does not divide the " + std::to_string(number) +
         " " + name + (number == 1 ? "" : "s");
}

// Each tensor rank computes whole heads. --print-mesh knows no model; otherwise the settings of the
// model must be known.
inline void check_tensor_ranks(const TrainResolution& r) {
  const std::int64_t tp = tensor_ranks_of(r), ranks = r.facts.ranks;
  const bool has_model = !r.request.ranks.print_mesh.value_or(false);
  const std::int64_t heads = has_model ? model_shape(r.config, r.facts).heads : 0;
  if (heads % tp != 0) {
    fail_usage(divisor_problem("--tp", tp, heads, "head"), divisors_hint(heads));
  }
  if (ranks % tp == 0) return;
  fail_usage(divisor_problem("--tp", tp, ranks, "rank"),
             divisors_hint(ranks, heads) + (ranks == 1 ? "; mpirun -np N starts N ranks" : ""));
}

// The number of ranks that train on different samples, counted once per tensor group. The settings
// of the model must be known.
inline std::int64_t data_ranks_of(const TrainResolution& r) {
  check_tensor_ranks(r);
  return r.facts.ranks / tensor_ranks_of(r);
}

// Off, if it is not typed and there is only one tensor rank.
inline std::optional<SettingValue> fitting_sequence_parallel(const TrainResolution& r) {
  if (tensor_ranks_of(r) > 1) return std::nullopt;
  return SettingValue(false);
}

inline void check_sequence_parallel(const TrainResolution& r) {
  if (!r.config.ranks.sequence_parallel || tensor_ranks_of(r) > 1) return;
  fail_usage(
      "--sequence-parallel has no effect without --tp of at least 2: it spreads rows over the "
      "tensor ranks",
      "give --tp N, at least 2, or leave it out");
}

// Matrix-product libraries count the rows of a micro-batch in 32 bits.
inline void check_sequences(const TrainResolution& r) {
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  if (T > r.config.model.context) {
    fail("--seq-len " + std::to_string(T) + " is longer than the model's context of " +
             std::to_string(r.config.model.context),
         "use at most --context");
  }
  constexpr std::int64_t kMaxSequences = 65535;  // attention: a grid has at most so many in y or z
  if (B > kMaxSequences) {
    fail("--batch-size " + std::to_string(B) + " is too large",
         "use at most " + std::to_string(kMaxSequences) + "; --grad-accum makes steps larger");
  }
  constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1;
  if (B <= kMaxRows / T) return;
  fail("--batch-size " + std::to_string(B) + " is too large for sequences of " + std::to_string(T) +
           " tokens",
       "use at most " + std::to_string(kMaxRows / T) + "; --grad-accum makes steps larger");
}

// Default tokens per step on a GPU: the batch of 0.5M tokens of GPT-3 Small (Brown et al., 2020).
inline constexpr std::int64_t kGpuStepTokens = 524288;

// The default of --grad-accum: as many micro-batches as come closest to the default tokens per
// step.
inline std::int64_t default_grad_accum(const TrainResolution& r) {
  if (!r.facts.default_step_tokens) return 1;
  const std::int64_t micro = r.config.batch.batch_size * r.config.batch.seq_len * data_ranks_of(r);
  return std::max<std::int64_t>(1, (*r.facts.default_step_tokens + micro / 2) / micro);
}

// The --grad-accum that --total-batch-tokens implies, if that is given.
inline std::optional<SettingValue> implied_grad_accum(const TrainResolution& r) {
  const std::optional<std::int64_t> total = r.request.batch.total_batch_tokens;
  if (!total) return std::nullopt;
  const std::int64_t B = r.config.batch.batch_size, T = r.config.batch.seq_len;
  const std::int64_t ranks = data_ranks_of(r), micro = B * T * ranks;
  if (*total % micro == 0) return *total / micro;
  const bool several = ranks > 1;
  const std::string name = tensor_ranks_of(r) > 1 ? "data-parallel ranks" : "ranks";
  fail("--total-batch-tokens " + std::to_string(*total) +
           " is not a multiple of --batch-size x --seq-len" + (several ? " x " + name : "") +
           " = " + std::to_string(B) + " x " + std::to_string(T) +
           (several ? " x " + std::to_string(ranks) : "") + " = " + std::to_string(micro),
       "use a multiple, such as " +
           std::to_string(std::max<std::int64_t>(1, *total / micro) * micro));
}

inline void check_step_tokens(const TrainResolution& r) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
  const std::int64_t rows = r.config.batch.batch_size * r.config.batch.seq_len * data_ranks_of(r);
  if (r.config.batch.grad_accum <= kMaxTokens / rows) return;
  fail("--grad-accum " + std::to_string(r.config.batch.grad_accum) +
           " makes steps of more than 2^40 tokens",
       "use at most " + std::to_string(kMaxTokens / rows) + " for this micro-batch");
}

// All data-parallel ranks, if a recorded shard group does not divide their present number.
inline std::optional<SettingValue> fitting_shard_group(const TrainResolution& r) {
  const std::int64_t recorded = r.facts.preset.ranks.shard_group.value_or(0);
  if (recorded == 0 || data_ranks_of(r) % recorded == 0) return std::nullopt;
  return SettingValue(std::int64_t{0});
}

inline void check_shard_group(const TrainResolution& r) {
  const std::int64_t group = r.config.ranks.shard_group, tp = r.config.ranks.tp;
  const std::int64_t ranks = r.config.data_ranks();
  if (group == 0 || ranks % group == 0) return;
  const std::string reason =
      ": " + std::to_string(r.facts.ranks) + " ranks / --tp " + std::to_string(tp);
  fail_usage(
      divisor_problem("--shard-group", group, ranks, tp > 1 ? "data-parallel rank" : "rank") +
          (tp > 1 ? reason : ""),
      divisors_hint(ranks));
}

// The smallest number of steps that trains on `epochs` x `windows` sequences. Without source
// weights each window is then used `epochs` times; a few windows of the next epoch may be used too.
inline std::int64_t steps_of_epochs(double epochs, std::int64_t windows,
                                    std::int64_t global_batch) {
  constexpr double kRounding = 1e-12;  // 0.1 epochs of 30 windows are 3 sequences, not 4
  const double samples = std::ceil(epochs * static_cast<double>(windows) * (1 - kRounding));
  if (samples > 0x1p62) fail("--epochs is too large: the run would have more than 2^62 sequences");
  return ceil_div(static_cast<std::int64_t>(samples), global_batch);
}

// The --steps that --epochs implies, if that is given and the data are known.
inline std::optional<SettingValue> implied_steps(const TrainResolution& r) {
  if (!r.request.schedule.epochs || !r.facts.windows) return std::nullopt;
  return steps_of_epochs(*r.request.schedule.epochs, *r.facts.windows, r.config.global_batch());
}

// Steps between two events if a run has `count` of them; at least 1.
inline std::int64_t step_interval(const TrainResolution& r, std::int64_t count) {
  return std::max<std::int64_t>(1, r.config.schedule.steps / count);
}

// The dropout probability of each part that --dropout implies, if that is given.
inline std::optional<SettingValue> implied_dropout(const TrainResolution& r) {
  if (!r.request.dropout.all) return std::nullopt;
  return *r.request.dropout.all;
}

// Half of a new --seq-len, if the --eval-stride of the resumed run is longer than that.
inline std::optional<SettingValue> implied_stride(const TrainResolution& r) {
  const std::int64_t T = r.config.batch.seq_len;
  if (r.facts.preset.evaluation.stride.value_or(0) <= T) return std::nullopt;
  return (T + 1) / 2;
}

inline void check_keep_best(const TrainResolution& r) {
  if (!r.request.output.keep_best.value_or(false) || r.config.validation.every > 0) return;
  fail("--keep-best has no effect with --eval-every 0: no validation losses are computed",
       "leave it out, or give a positive --eval-every");
}

inline void check_loss_scale(const TrainResolution& r) {
  int exponent = 0;
  if (std::frexp(r.config.precision.loss_scale, &exponent) == 0.5) return;
  fail("--loss-scale " + std::to_string(r.config.precision.loss_scale) + " is not a power of two",
       "use 1, 2, 4 ... or 16777216, which scale without rounding");
}

}  // namespace llmc
