// The interface of a training run to its model, in any dtype: a call per step, pass or tensor, none
// per row. Code above this interface has no template parameter for the dtype.
#pragma once

#include <memory>
#include <vector>

#include "llmc/device/phase_clock.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/step_batches.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

class TrainingRunner {
 public:
  virtual ~TrainingRunner() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const RunShape& shape() const = 0;
  virtual const ParameterTable& table() const = 0;
  virtual Context& context() = 0;
  Stream& stream() { return context().stream; }

  // The device memory that the run reserves, and its allocation, which clears the state.
  virtual const MemoryPlan& memory() const = 0;
  virtual void allocate() = 0;

  virtual RunState& state() = 0;
  virtual EvaluationPass& evaluation() = 0;

  // Runs all passes of a step on this rank. Adds to the gradients and to the loss. `clock` times
  // data, forward and backward passes; null: nothing is timed.
  virtual void run_passes(const StepBatches& batches, PhaseClock* clock) = 0;
  // Whether the gradient that the last backward pass of this rank left in its workspace is finite.
  // Waits for it.
  virtual bool left_finite_gradient() = 0;
  // Records when passes begin and end, from the next step on. `begin` is the time 0 of each step.
  virtual void time_passes(const Event* begin) = 0;
  // The passes of the last step with their times in milliseconds. Waits for them.
  virtual std::vector<TimedPass> timed_passes() = 0;

  // The FLOP/s of the fastest matrix product in the dtype (measured_peak.h).
  virtual double measured_peak_flops() = 0;
};

// Reserves the memory of a run in the plan; usable after allocate(). The ranks' world must outlive
// the runner.
std::unique_ptr<TrainingRunner> make_training_runner(Dtype dtype, const ModelConfig& config,
                                                     const RunShape& shape, const GemmOptions& gemm,
                                                     Ranks ranks);

// The device memory that a run of this shape reserves; nothing is allocated. The call changes the
// size of context.scratch, so `context` must belong to a run that does not start.
std::vector<MemoryPlan::Segment> planned_segments(Dtype dtype, const ModelConfig& config,
                                                  const RunShape& shape, Context& context);
std::int64_t planned_bytes(Dtype dtype, const ModelConfig& config, const RunShape& shape,
                           Context& context);

}  // namespace llmc
