// The training runner of one dtype: the engine of a run with its passes. Tests use its parts.
#pragma once

#include <utility>
#include <vector>

#include "llmc/models/engine.h"
#include "llmc/parallel/measured_peak.h"
#include "llmc/parallel/pipeline_runner.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/parallel/training_state.h"

namespace llmc {

template <class T>
class TrainingEngine final : public TrainingRunner {
 public:
  TrainingEngine(const ModelConfig& config, const RunShape& shape, const GemmOptions& gemm = {},
                 Ranks ranks = {})
      : engine_(config, shape, gemm, std::move(ranks)), passes_(engine_.runner()) {}

  const ModelConfig& config() const override { return engine_.config(); }
  const RunShape& shape() const override { return engine_.shape(); }
  const ParameterTable& table() const override { return engine_.table(); }
  Context& context() override { return engine_.context(); }
  const MemoryPlan& memory() const override { return engine_.memory(); }
  void allocate() override { engine_.allocate(); }
  TrainingState<T>& state() override { return engine_.state(); }
  ModelRunner<T>& runner() { return engine_.runner(); }
  EvaluationPass& evaluation() override { return engine_.runner(); }

  void run_passes(const StepBatches& batches, PhaseClock* clock) override {
    passes_.run(batches, clock);
  }
  bool left_finite_gradient() override { return passes_.left_finite_gradient(); }
  void time_passes(const Event* begin) override { passes_.time_passes(begin); }
  std::vector<TimedPass> timed_passes() override { return passes_.timed_passes(); }

  double measured_peak_flops() override {
    return llmc::measured_peak_flops<T>(context().gemm, context().stream);
  }

 private:
  // Waits for transfers, which use the other members.
  struct Settle {
    Context& context;
    ~Settle() { context.settle(); }
  };

  Engine<T, TrainingState<T>> engine_;
  PipelineRunner<T> passes_;
  Settle settle_{engine_.context()};  // last
};

}  // namespace llmc
