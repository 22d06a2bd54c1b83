// One optimizer step: forward and backward of its micro-batches, then the update.
//
// Micro-batch j of data rank r, of N data ranks, has the samples from (j N + r) B on. So a step has
// the same samples for any number of ranks. Tensor ranks and pipeline ranks have the same data
// rank.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "llmc/base/prefetch.h"
#include "llmc/comm/exchange.h"
#include "llmc/config/learning_rate_schedule.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/device/phase_clock.h"
#include "llmc/io/data/batches.h"
#include "llmc/models/batch_stage.h"
#include "llmc/nn/pass_options.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/pipeline/timeline.h"
#include "llmc/train/run_position.h"
#include "llmc/train/watch/finite_check.h"

namespace llmc {

struct StepResult {
  double loss = 0;  // mean over the targets of the step, on all ranks; NaN if there are none
  std::int64_t targets = 0;
  std::int64_t tokens = 0;       // positions that all ranks computed, with padding
  std::uint64_t token_hash = 0;  // of this rank's windows, which equal data ranks share
  double learning_rate = 0;
  OptimizerState optimizer{};  // after the step
  PhaseTimes phases{};         // of this rank
  // That this rank has moved since the start (StepNumbers::offload_bytes).
  std::array<std::int64_t, 4> offload_bytes{};
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
  ~TrainStep() { runner_.context().time(nullptr); }
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Starts a thread that prepares micro-batches ahead of their use, from the position's samples on.
  void read_ahead(const RunPosition& position);

  // Measures when passes begin and end in all later steps; the ranks begin these together.
  void time_passes();
  // The passes of the last step, in milliseconds from its begin.
  std::vector<TimedPass> timed_passes() { return runner_.timed_passes(); }

  // Runs the step after `position` and advances the position by one step.
  StepResult run(RunPosition& position);

  // Runs the passes of the last step again, which ended at `position` with a loss or gradient that
  // is not finite, and checks every operation. Changes nothing that a later step reads. All ranks
  // call this together.
  NotFinite diagnose(const RunPosition& position, const StepResult& result);

 private:
  struct Item {
    PreparedBatch prepared;
    std::uint64_t hash = 0;
  };

  void begin_timeline();

  // The number of this rank's first sample in micro-batch `index`, counted from that of the step.
  std::int64_t first_in_step(std::int64_t index) const;

  // The number of targets of the step on all ranks, which the loss of the first micro-batch already
  // needs. Only samples with masked targets are counted one by one.
  std::int64_t count_targets();

  // The options of passes of micro-batch `index` of the step after `position`.
  PassOptions pass_options(const RunPosition& position, std::int64_t index) const;

  LossOptions loss_options(const StepResult& result) const;

  void run_passes(const RunPosition& position, StepResult& result);

  // The passes of diagnose().
  void run_passes_again(const RunPosition& before, const StepResult& result, FiniteCheck& check);

  // The next micro-batch of the step, counted in its result.
  Item next_item(StepResult& result);

  // No token of the step has a target: there is nothing to learn.
  void skip_micro_batches(StepResult& result);

  const RunConfig& config_;
  Schedule schedule_;
  TrainingRunner& runner_;
  Exchange& exchange_;
  SampleSource samples_;
  PhaseClock clock_;
  Buffer<float> own_loss_{1};  // the loss of this rank's passes, before the sum over ranks
  bool times_passes_ = false;
  Event step_begin_;
  std::deque<Item> step_batches_;           // of this step, if they were read to count targets
  std::optional<ReadAhead<Item>> batches_;  // last: its thread reads the members above
};

}  // namespace llmc
