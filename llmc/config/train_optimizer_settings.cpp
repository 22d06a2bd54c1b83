#include "llmc/config/train_optimizer_settings.h"

#include <cstdint>
#include <utility>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_settings.h"

// Each group is a struct with the values and a list of rows. Rules and checks that the rows call
// are in train_rules.h.
//
// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> schedule_rows() {
  return {
      {.flag = "--steps",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.steps); },
       .unit = "STEPS",
       .help = "optimizer steps of the whole run; 0 only evaluates --val or --eval",
       .fallback = 1000,
       .range = at_least(0),
       .excluded_flags = {"--epochs"},
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {90, " to step {}"}},
       .implied_value = [](const Resolution<TrainProgram>& r) { return implied_steps(r); }},
      {.flag = "--epochs",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.epochs); },
       .unit = "EPOCHS",
       .help = "length of the run, instead of --steps; an epoch has as many windows as --train",
       .range = between(1e-6, 1e6),
       .changes_results = true,
       .on_resume = OnResume::indirect},
      {.flag = "--lr",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.peak); },
       .unit = "X",
       .help = "maximum learning rate, reached at the end of warm-up",
       .fallback = 6e-4,
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {60, "; learning rate at most {}"}}},
      {.flag = "--warmup",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.warmup); },
       .unit = "STEPS",
       .help = "steps of linear warm-up",
       .fallback = {"--steps / 20",
                    [](const Resolution<TrainProgram>& r) { return r.config.schedule.steps / 20; }},
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {70, ", warm-up of {} steps"}}},
      {.flag = "--schedule",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.decay); },
       .help = "learning-rate schedule after warm-up",
       .fallback = SettingValue("cosine"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {80, ", {}"}}},
      {.flag = "--decay-fraction",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.decay_fraction); },
       .unit = "FRACTION",
       .help = "for --schedule wsd: fraction of --steps, at the end of the run, in which the "
               "learning rate falls linearly",
       .fallback = 0.2,
       .range = between(0, 1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--schedule", {"wsd"}}}},
      {.flag = "--final-lr-fraction",
       .field = [](auto& s) -> decltype(auto) { return (s.schedule.final_fraction); },
       .unit = "FRACTION",
       .help = "learning rate at the last step, as a fraction of --lr",
       .fallback = 0.1,
       .range = between(0, 1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.old_names = {"--final-lr"}}},
  };
}

Settings<TrainProgram> optimizer_rows() {
  return {
      {.flag = "--beta1",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.beta1); },
       .unit = "X",
       .help = "decay rate of the first moment",
       .fallback = 0.9,
       .range = between(0, 0.999999),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {10, ", betas {}"}}},
      {.flag = "--beta2",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.beta2); },
       .unit = "X",
       .help = "decay rate of the second moment",
       .fallback = 0.95,
       .range = between(0, 0.999999),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {20, " and {}"}}},
      {.flag = "--eps",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.eps); },
       .unit = "X",
       .help = "value added to the square root of the second moment",
       .fallback = 1e-8,
       .range = at_least(1e-30),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {30, ", eps {}"}}},
      {.flag = "--weight-decay",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.weight_decay); },
       .unit = "X",
       .help = "decoupled weight decay of matrices and embeddings",
       .fallback = 0.1,
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {40, ", weight decay {}"}}},
      {.flag = "--grad-clip",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.grad_clip); },
       .unit = "NORM",
       .help = "clip the global gradient norm to this value; 0 disables clipping",
       .fallback = 1.0,
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.card = {50, ", clipping at {}"}, .old_names = {"--clip"}}},
      {.flag = "--loss-scale-window",
       .field = [](auto& s) -> decltype(auto) { return (s.optimizer.loss_scale_window); },
       .unit = "STEPS",
       .help = "for --dtype fp16: steps without overflow after which the loss scale doubles",
       .fallback = 2000,
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--dtype", {"fp16"}}}},
      {.flag = "--on-nan",
       .field = [](auto& s) -> decltype(auto) { return (s.output.on_nan); },
       .help = "what to do after a step whose loss or gradient is not finite, when a second run of "
               "its micro-batches has found the operation and the rank: stop ends the run without "
               "a save; skip skips the update and continues; an fp16 overflow that lowers the "
               "loss scale only skips",
       .fallback = SettingValue("stop")},
      {.flag = "--max-skipped",
       .field = [](auto& s) -> decltype(auto) { return (s.output.max_skipped); },
       .unit = "STEPS",
       .help = "fail after this many consecutive updates that were skipped because the loss or the "
               "gradient was not finite; in fp16, only those that a smaller loss scale cannot fix "
               "count",
       .fallback = 10,
       .range = at_least(1)},
  };
}

Settings<TrainProgram> dropout_rows() {
  // The row of a part of GPT-2 that has its own dropout.
  const auto part = [](const char* flag, Field<TrainProgram> field, const char* help) {
    return Setting<TrainProgram>{
        .flag = flag,
        .field = std::move(field),
        .unit = "PROBABILITY",
        .help = help,
        .fallback = {"--dropout",
                     [](const Resolution<TrainProgram>& r) { return r.config.dropout.all; }},
        .range = between(0, 0.999999),
        .changes_results = true,
        .on_resume = OnResume::noted,
        .implied_value = [](const Resolution<TrainProgram>& r) { return implied_dropout(r); }};
  };
  return {
      {.flag = "--dropout",
       .field = [](auto& s) -> decltype(auto) { return (s.dropout.all); },
       .unit = "PROBABILITY",
       .help = "dropout probability; default of the three flags below",
       .fallback = 0,
       .range = between(0, 0.999999),
       .changes_results = true,
       .on_resume = OnResume::indirect},
      part(
          "--embedding-dropout", [](auto& s) -> decltype(auto) { return (s.dropout.embedding); },
          "dropout probability of the sum of the embeddings"),
      part(
          "--attention-dropout", [](auto& s) -> decltype(auto) { return (s.dropout.attention); },
          "dropout probability of the attention probabilities"),
      part(
          "--residual-dropout", [](auto& s) -> decltype(auto) { return (s.dropout.residual); },
          "dropout probability of the output of each branch"),
  };
}

Settings<TrainProgram> precision_rows() {
  return {
      {.flag = "--device",
       .field = [](auto& s) -> decltype(auto) { return (s.device.choice); },
       .help = "device to run on; auto selects a GPU if there is one",
       .fallback = SettingValue("auto"),
       .changes_results = true,
       .on_resume = OnResume::process,
       .quantity = "device"},
      {.flag = "--dtype",
       .field = [](auto& s) -> decltype(auto) { return (s.precision.dtype); },
       .help = "dtype of activations and weights; master weights and sums are fp32",
       .fallback = SettingValue("fp32"),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .quantity = "dtype"},
      {.flag = "--loss-scale",
       .field = [](auto& s) -> decltype(auto) { return (s.precision.loss_scale); },
       .unit = "X",
       .help = "for --dtype fp16: initial loss scale, a power of two; halved if a gradient "
               "overflows, doubled after --loss-scale-window steps without overflow",
       .fallback = 65536,
       .range = between(1, 16777216),
       .changes_results = true,
       .on_resume = OnResume::ignored,
       .special = {.condition = {"--dtype", {"fp16"}}},
       .verify = [](const Resolution<TrainProgram>& r) { return check_loss_scale(r); }},
      {.flag = "--stochastic-rounding",
       .field = [](auto& s) -> decltype(auto) { return (s.precision.stochastic_rounding); },
       .help = "for --dtype bf16 and fp16: round the fp32 master weights up or down at random "
               "(unbiased) instead of to nearest",
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--dtype", {"bf16", "fp16"}}}},
      {.flag = "--attention",
       .field = [](auto& s) -> decltype(auto) { return (s.precision.attention); },
       .help = "attention kernels; standard stores the (T, T) matrix and is a baseline",
       .fallback = SettingValue("flash"),
       .changes_results = true,
       .on_resume = OnResume::noted},
      {.flag = "--tf32",
       .field = [](auto& s) -> decltype(auto) { return (s.precision.tf32); },
       .help = "allow TF32 in fp32 matmuls on a GPU",
       .changes_results = true,
       .on_resume = OnResume::noted},
      {.flag = "--peak-tflops",
       .field = [](auto& s) -> decltype(auto) { return (s.device.peak_tflops); },
       .unit = "TFLOP/s",
       .help = "peak performance that MFU is relative to",
       .fallback = "from the GPU's data sheet, else measured with matrix products",
       .range = at_least(0),
       .on_resume = OnResume::process},
      {.flag = "--seed",
       .field = [](auto& s) -> decltype(auto) { return (s.seed); },
       .unit = "N",
       .help = "seed of initialization, shuffling, sampling, dropout and rounding",
       .fallback = 1337,
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::fixed},
  };
}

}  // namespace llmc
