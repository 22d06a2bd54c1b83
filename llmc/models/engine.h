// Everything that is needed to run a model of one shape, or the part of it that one of several
// ranks computes: the parameter table, the memory plan, the weights or the training state, and the
// model with its buffers. Programs, tests and benchmarks build it the same way:
//
//   Engine<bf16> engine(config, shape);   // reserves; memory().total() is the size needed
//   engine.allocate();
//   load_weights(path, engine.state(), engine.stream());
//   engine.runner().forward(engine.runner().put(batch));
#pragma once

#include <type_traits>
#include <utility>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/model_runner.h"
#include "llmc/models/weights.h"
#include "llmc/nn/memory_plan.h"

namespace llmc {

// State: Weights<T>, or TrainingState<T> (parallel/training_state.h).
template <class T, class State = Weights<T>>
class Engine {
 public:
  Engine(const ModelConfig& config, const RunShape& shape, const GemmOptions& gemm = {},
         Ranks ranks = {})
      : context_(gemm, std::move(ranks)),
        table_(gpt2_parameters(config, context_.tensor.place(), shape)),
        state_(make_state(table_, shape, context_, memory_)),
        runner_(config, table_, state_.source(), shape, context_, memory_) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Allocates everything that is reserved in the plan, including reservations made after
  // construction, and clears the state.
  void allocate() {
    memory_.allocate();
    state_.clear(context_.stream);
  }

  const ModelConfig& config() const { return runner_.config(); }
  const RunShape& shape() const { return runner_.shape(); }
  const ParameterTable& table() const { return table_; }
  MemoryPlan& memory() { return memory_; }
  const MemoryPlan& memory() const { return memory_; }
  Context& context() { return context_; }
  Stream& stream() { return context_.stream; }
  State& state() { return state_; }
  const State& state() const { return state_; }
  ModelRunner<T>& runner() { return runner_; }

 private:
  static State make_state(const ParameterTable& table, const RunShape& shape, Context& context,
                          MemoryPlan& memory) {
    if constexpr (std::is_constructible_v<State, const ParameterTable&, MemoryPlan&, bool>) {
      return State(table, memory, shape.int8_weights);
    } else {
      return State(table, shape, context, memory);
    }
  }

  Context context_;
  ParameterTable table_;
  MemoryPlan memory_;
  State state_;
  ModelRunner<T> runner_;
};

}  // namespace llmc
