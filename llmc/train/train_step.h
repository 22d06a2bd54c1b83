// One optimizer step: forward and backward of its micro-batches, then the update.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/base/prefetch.h"
#include "llmc/config/train_settings.h"
#include "llmc/train/checkpoint/checkpointing.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/schedule.h"
#include "llmc/train/training_state.h"

namespace llmc {

struct StepResult {
  double loss = 0;  // mean over the tokens of the step
  double learning_rate = 0;
  OptimizerState optimizer{};  // after the step
};

template <class T>
class TrainStep {
 public:
  // All references must outlive the object. `train` is the training text.
  TrainStep(const RunConfig& config, TrainingEngine<T>& engine, const ShuffledWindows& train)
      : config_(config),
        schedule_(make_schedule(config.schedule)),
        engine_(engine),
        train_(train) {}

  // Starts a thread that prepares micro-batches ahead of their use, from the position's samples on.
  void read_ahead(const RunPosition& position) {
    const std::int64_t B = config_.batch.batch_size;
    batches_.emplace([this, B, first = position.samples](std::int64_t n) {
      return prepare(train_.batch(first + n * B, B));
    });
  }

  // Runs the step after `position` and advances the position by one step.
  StepResult run(RunPosition& position) {
    TrainingState<T>& state = engine_.state();
    Stream& stream = engine_.stream();
    StepResult result{.learning_rate = schedule_.rate(position.step)};
    state.begin_step(stream, config_.batch.grad_accum);
    for (std::int64_t index = 0; index < config_.batch.grad_accum; ++index) {
      run_micro_batch(position, index);
    }
    state.finish_gradients(stream);
    state.apply_gradients(config_.optimizer, result.learning_rate, stream);
    result.loss = static_cast<double>(state.loss_value(stream));
    result.optimizer = state.optimizer_state(stream);
    position.step += 1;
    position.samples += config_.global_batch();
    position.tokens += config_.tokens_per_step();
    return result;
  }

 private:
  void run_micro_batch(const RunPosition& position, std::int64_t index) {
    TrainingState<T>& state = engine_.state();
    const LossOptions loss = {.scale = 1.0f / static_cast<float>(config_.tokens_per_step()),
                              .sum = state.loss(),
                              .factor = state.loss_scale()};
    const PassOptions options = {
        .dropout = config_.dropout_rates(),
        .seed = config_.seed,
        .step = position.step,
        .first_sample = position.samples + index * config_.batch.batch_size};
    engine_.runner().forward_backward(next_batch(), loss, options);
  }

  DeviceBatch next_batch() {
    const ProfileScope scope("data", engine_.stream());
    return engine_.runner().put(batches_->next());
  }

  const RunConfig& config_;
  Schedule schedule_;
  TrainingEngine<T>& engine_;
  const ShuffledWindows& train_;
  std::optional<ReadAhead<PreparedBatch>> batches_;  // last: its thread reads the members above
};

}  // namespace llmc
