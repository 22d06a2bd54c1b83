// One optimizer step: forward and backward of its micro-batches, then the update.
//
// Micro-batch j of data rank r, of N data ranks, has the samples from (j N + r) B on. So a step has
// the same samples for any number of ranks. Tensor ranks and pipeline ranks have the same data
// rank.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "llmc/base/prefetch.h"
#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/phase_clock.h"
#include "llmc/io/data/token_hash.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run_position.h"
#include "llmc/train/schedule.h"
#include "llmc/train/training_runner.h"

namespace llmc {

struct StepResult {
  double loss = 0;  // mean over the targets of the step, on all ranks; NaN if there are none
  std::int64_t targets = 0;
  std::uint64_t token_hash = 0;  // of this rank's windows, which equal data ranks share
  double learning_rate = 0;
  OptimizerState optimizer{};  // after the step
  PhaseTimes phases{};         // of this rank
};

// Training samples first .. first + B - 1 of the run. Another thread calls it.
struct SampleSource {
  std::function<Batch(std::int64_t first, std::int64_t B)> batch;
  bool masks_targets = false;  // whether targets may be -1, on any rank
};

class TrainStep {
 public:
  // All references, and what the samples need, must outlive the object.
  TrainStep(const RunConfig& config, TrainingRunner& runner, Exchange& exchange,
            SampleSource samples)
      : config_(config),
        schedule_(make_schedule(config.schedule)),
        runner_(runner),
        exchange_(exchange),
        samples_(std::move(samples)) {}
  ~TrainStep() { runner_.context().ranks.time(nullptr); }
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Starts a thread that prepares micro-batches ahead of their use, from the position's samples on.
  void read_ahead(const RunPosition& position) {
    const std::int64_t accum = config_.batch.grad_accum;
    batches_.emplace([this, accum, start = position.samples](std::int64_t n) {
      const std::int64_t first =
          start + n / accum * config_.global_batch() + first_in_step(n % accum);
      Batch batch = samples_.batch(first, config_.batch.batch_size);
      const std::uint64_t hash = token_hash(batch, first);
      return Item{prepare(std::move(batch)), hash};
    });
  }

  // Measures when passes begin and end in all later steps; the ranks begin these together.
  void time_passes() {
    times_passes_ = true;
    runner_.time_passes(&step_begin_);
  }
  // The passes of the last step, in milliseconds from its begin.
  std::vector<TimedPass> timed_passes() { return runner_.timed_passes(); }

  // Runs the step after `position` and advances the position by one step.
  StepResult run(RunPosition& position) {
    RunState& state = runner_.state();
    Stream& stream = runner_.stream();
    // Evaluations after this step keep the mode.
    runner_.context().quantization.set(config_.quantized_pass(position.step + 1));
    clock_.start(stream);
    if (times_passes_) begin_timeline();
    // Not between steps: evaluations may communicate any number of times.
    runner_.context().ranks.time(&clock_);
    StepResult result{.learning_rate = schedule_.rate(position.step)};
    result.targets = count_targets();
    if (result.targets > 0) {
      state.begin_step(stream, config_.batch.grad_accum);
      run_passes(position, result);
      state.finish_gradients(stream);
      clock_.mark(Phase::optimizer, stream);
      state.apply_gradients(config_.optimizer, result.learning_rate, stream);
      result.loss = static_cast<double>(state.loss_value(stream));
    } else {
      skip_micro_batches(result);
    }
    result.optimizer = state.optimizer_state(stream);
    clock_.mark(Phase::other, stream);
    runner_.context().ranks.time(nullptr);
    result.phases = clock_.milliseconds();
    position.step += 1;
    position.samples += config_.global_batch();
    position.tokens += config_.tokens_per_step();
    return result;
  }

 private:
  struct Item {
    PreparedBatch prepared;
    std::uint64_t hash = 0;
  };

  void begin_timeline() {
    exchange_.barrier();
    step_begin_.record(runner_.stream());
  }

  // The number of this rank's first sample in micro-batch `index`, counted from that of the step.
  std::int64_t first_in_step(std::int64_t index) const {
    const Ranks& ranks = runner_.context().ranks;
    return (index * ranks.mesh().data_ranks() + ranks.data_rank()) * config_.batch.batch_size;
  }

  // The number of targets of the step on all ranks, which the loss of the first micro-batch already
  // needs. Only samples with masked targets are counted one by one.
  std::int64_t count_targets() {
    if (!samples_.masks_targets) return config_.tokens_per_step();
    std::vector<std::int64_t> count = {0};
    for (std::int64_t index = 0; index < config_.batch.grad_accum; ++index) {
      step_batches_.push_back(batches_->next());
      const std::vector<std::int32_t>& targets = step_batches_.back().prepared.batch.targets;
      count[0] += std::ssize(targets) - std::ranges::count(targets, -1);
    }
    if (!runner_.context().ranks.first_of_data_rank()) count[0] = 0;
    exchange_.sum(count);
    return count[0];
  }

  void run_passes(const RunPosition& position, StepResult& result) {
    RunState& state = runner_.state();
    const auto next = [&] {
      Item item = next_item();
      result.token_hash += item.hash;
      return std::move(item.prepared);
    };
    const auto options = [&](std::int64_t index) {
      return PassOptions{.dropout = config_.dropout_rates(),
                         .seed = config_.seed,
                         .step = position.step,
                         .first_sample = position.samples + first_in_step(index)};
    };
    const LossOptions loss = {.scale = 1.0f / static_cast<float>(result.targets),
                              .sum = state.loss(),
                              .factor = state.loss_scale()};
    runner_.run_passes(
        {.count = config_.batch.grad_accum, .next = next, .options = options, .loss = loss},
        &clock_);
  }

  Item next_item() {
    if (step_batches_.empty()) return batches_->next();
    Item item = std::move(step_batches_.front());
    step_batches_.pop_front();
    return item;
  }

  // No token of the step has a target: there is nothing to learn.
  void skip_micro_batches(StepResult& result) {
    result.loss = std::numeric_limits<double>::quiet_NaN();
    while (!step_batches_.empty()) result.token_hash += next_item().hash;
  }

  const RunConfig& config_;
  Schedule schedule_;
  TrainingRunner& runner_;
  Exchange& exchange_;
  SampleSource samples_;
  PhaseClock clock_;
  bool times_passes_ = false;
  Event step_begin_;
  std::deque<Item> step_batches_;           // of this step, if they were read to count targets
  std::optional<ReadAhead<Item>> batches_;  // last: its thread reads the members above
};

}  // namespace llmc
