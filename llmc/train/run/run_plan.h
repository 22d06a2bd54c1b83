// What a run will do: the settings with every default filled in and everything checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "llmc/config/gpt2_config.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/model/activations.h"
#include "llmc/model/pass_options.h"
#include "llmc/train/schedule.h"

namespace llmc {

struct RunPlan {
  RunShape shape;
  std::int64_t grad_accum = 1;
  std::int64_t steps = 0;
  std::int64_t eval_every = 0, sample_every = 0;
  Schedule schedule;
  double weight_decay = 0.1;
  double first_loss_scale = 65536;  // the loss scale is for fp16 alone
  std::int64_t loss_scale_window = 2000;
  bool stochastic_rounding = false;
  DropoutRates dropout;

  std::int64_t global_batch() const { return shape.B * grad_accum; }  // sequences in a step
  std::int64_t tokens_per_step() const { return global_batch() * shape.T; }
};

// The model that the flags ask for, where the weights do not come from a file. `fallback` has the
// sizes nobody named; with --model, that model's.
inline Gpt2Config requested_config(const TrainSettings& settings, const Gpt2Config& fallback) {
  Gpt2Config config = settings.model.empty() ? fallback : config_from_name(settings.model);
  config.vocabulary = fallback.vocabulary;
  if (settings.layers > 0) config.layers = settings.layers;
  if (settings.heads > 0) config.heads = settings.heads;
  if (settings.channels > 0) config.channels = settings.channels;
  if (settings.context > 0) config.context = settings.context;
  check_config(config);
  return config;
}

// Weights from a file bring their sizes: flags that say otherwise are a mistake. A shorter
// --context is no mistake but is asked for with --seq-len.
inline void check_flags_agree(const TrainSettings& settings, const Gpt2Config& loaded) {
  const auto agree = [&](const char* flag, std::int64_t asked, std::int64_t found) {
    if (asked == 0 || asked == found) return;
    fail(std::string(flag) + " " + std::to_string(asked) + " does not agree with " +
             std::to_string(found) + " in " + settings.init_from,
         "leave the flag out: --init-from brings the model's sizes");
  };
  agree("--layers", settings.layers, loaded.layers);
  agree("--heads", settings.heads, loaded.heads);
  agree("--channels", settings.channels, loaded.channels);
  agree("--context", settings.context, loaded.context);
  if (settings.model.empty()) return;
  const Gpt2Config named = config_from_name(settings.model);
  agree(("--model " + settings.model + " with layers").c_str(), named.layers, loaded.layers);
  agree(("--model " + settings.model + " with channels").c_str(), named.channels, loaded.channels);
}

inline std::int64_t micro_batches(const TrainSettings& settings, const RunShape& shape) {
  if (settings.total_batch_tokens == 0) return std::max<std::int64_t>(1, settings.grad_accum);
  const std::int64_t micro = shape.rows();
  if (settings.total_batch_tokens % micro != 0) {
    fail(
        "--total-batch-tokens " + std::to_string(settings.total_batch_tokens) +
            " is not a multiple of --batch-size x --seq-len = " + std::to_string(shape.B) + " x " +
            std::to_string(shape.T) + " = " + std::to_string(micro),
        "the nearest is " +
            std::to_string(std::max<std::int64_t>(1, settings.total_batch_tokens / micro) * micro));
  }
  return settings.total_batch_tokens / micro;
}

// Rows of a micro-batch are counted in 32 bits by the libraries of matrix products.
inline void check_rows(const RunShape& shape) {
  constexpr std::int64_t kMostSequences = 65535;  // of attention: they are rows of a grid of blocks
  if (shape.B > kMostSequences) {
    fail("--batch-size " + std::to_string(shape.B),
         "at most " + std::to_string(kMostSequences) + "; --grad-accum makes steps larger");
  }
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  if (shape.B <= kMost / shape.T) return;
  fail("--batch-size " + std::to_string(shape.B) + " with sequences of " + std::to_string(shape.T) +
           " tokens",
       "at most " + std::to_string(kMost / shape.T) + "; --grad-accum makes steps larger");
}

// The fewest steps in which `epochs` times as many sequences are trained on as there are windows.
// Without weights each window has then been taken so often, and a few of the next epoch may have.
inline std::int64_t steps_of_epochs(double epochs, std::int64_t windows,
                                    std::int64_t global_batch) {
  constexpr double kRounding = 1e-12;  // 0.1 epochs of 30 windows are 3 sequences, not 4
  const double samples = std::ceil(epochs * static_cast<double>(windows) * (1 - kRounding));
  if (samples > 0x1p62) fail("--epochs of so much data are more than 2^62 sequences");
  return ceil_div(static_cast<std::int64_t>(samples), global_batch);
}

inline double decay_fraction(const TrainSettings& settings) {
  return settings.decay_fraction < 0 ? 0.2 : settings.decay_fraction;
}

inline void set_decay_steps(Schedule& schedule, const TrainSettings& settings) {
  if (schedule.decay != Decay::wsd) {
    if (settings.decay_fraction < 0) return;
    fail("--decay-fraction with --schedule " + settings.schedule, "it is for --schedule wsd");
  }
  if (schedule.steps == 0) return;
  schedule.decay_steps = wsd_decay_steps(schedule.steps, schedule.warmup, decay_fraction(settings));
}

// What depends on --dtype.
inline void set_precision(RunPlan& plan, const TrainSettings& settings) {
  const auto only_with = [&](const char* flag, bool given, bool works, const char* hint) {
    if (given && !works) fail(std::string(flag) + " with --dtype " + settings.dtype, hint);
  };
  const bool fp16 = settings.dtype == "fp16";
  only_with("--loss-scale", settings.loss_scale > 0, fp16, "it is for --dtype fp16");
  only_with("--loss-scale-window", settings.loss_scale_window > 0, fp16, "it is for --dtype fp16");
  only_with("--stochastic-rounding", settings.stochastic_rounding, settings.dtype != "fp32",
            "it is for --dtype bf16 or fp16: in fp32 no weight is rounded");
  plan.stochastic_rounding = settings.stochastic_rounding;
  if (settings.loss_scale_window > 0) plan.loss_scale_window = settings.loss_scale_window;
  if (settings.loss_scale == 0) return;
  plan.first_loss_scale = settings.loss_scale;
  int exponent = 0;
  if (std::frexp(settings.loss_scale, &exponent) != 0.5) {
    fail("--loss-scale " + std::to_string(settings.loss_scale) + " is not a power of two",
         "1, 2, 4 ... 16777216: scaling must not round");
  }
}

inline DropoutRates dropout_rates(const TrainSettings& settings) {
  const auto or_all = [&](double one) { return one >= 0 ? one : settings.dropout; };
  return {.embedding = or_all(settings.embedding_dropout),
          .attention = or_all(settings.attention_dropout),
          .residual = or_all(settings.residual_dropout)};
}

inline RunPlan make_run_plan(const TrainSettings& settings, const Gpt2Config& config) {
  RunPlan plan;
  plan.steps = settings.steps;
  plan.shape.B = settings.batch_size > 0 ? settings.batch_size : 8;
  plan.shape.T = settings.seq_len > 0 ? settings.seq_len : config.context;
  if (plan.shape.T > config.context) {
    fail("--seq-len " + std::to_string(plan.shape.T) + " is longer than the model's context of " +
             std::to_string(config.context),
         "at most --context");
  }
  check_rows(plan.shape);
  plan.shape.training = plan.steps > 0;
  plan.shape.logits_rows = settings.logits_rows;
  plan.shape.attention = settings.attention == "standard" ? Attention::standard : Attention::flash;
  plan.grad_accum = micro_batches(settings, plan.shape);
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  if (plan.grad_accum > kMostTokens / plan.shape.rows()) {
    fail(
        "--grad-accum " + std::to_string(plan.grad_accum) + " makes steps of more than 2^40 tokens",
        "at most " + std::to_string(kMostTokens / plan.shape.rows()) + " for this micro-batch");
  }
  const auto every = [&](std::int64_t asked, std::int64_t times) {
    return asked >= 0 ? asked : std::max<std::int64_t>(1, plan.steps / times);
  };
  plan.eval_every = every(settings.eval_every, 10);
  plan.sample_every = every(settings.sample_every, 5);
  // A prompt and what follows it are two tokens.
  if (plan.shape.T == 1 && settings.sample_every < 0) plan.sample_every = 0;
  plan.schedule = {.decay = parse_decay(settings.schedule),
                   .peak = settings.lr >= 0 ? settings.lr : 6e-4,
                   .final_fraction = settings.final_lr >= 0 ? settings.final_lr : 0.1,
                   .warmup = settings.warmup >= 0 ? settings.warmup : plan.steps / 20,
                   .steps = plan.steps};
  set_decay_steps(plan.schedule, settings);
  set_precision(plan, settings);
  plan.dropout = dropout_rates(settings);
  if (settings.weight_decay >= 0) plan.weight_decay = settings.weight_decay;
  return plan;
}

}  // namespace llmc
