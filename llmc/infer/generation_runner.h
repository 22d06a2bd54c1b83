// A model for inference, in any dtype: its weights, the passes over whole sequences, and passes of
// generation over caches. Programs build it in the same order:
//
//   const auto runner = make_generation_runner(Dtype::bf16, config, decode_shape());
//   const auto pass = runner->make_pass(Dtype::bf16, {.slots = 4, .capacity = 128, .chunk = 64});
//   runner->allocate();
//   load_weights(path, runner->weights(), runner->stream());
//   pass->clear();
#pragma once

#include <cstdint>
#include <memory>

#include "llmc/infer/generation_pass.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"

namespace llmc {

class GenerationRunner {
 public:
  virtual ~GenerationRunner() = default;

  virtual Dtype dtype() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual Context& context() = 0;
  Stream& stream() { return context().stream; }

  // The device memory that is reserved, and its allocation, which clears the weights.
  virtual MemoryPlan& memory() = 0;
  virtual void allocate() = 0;

  virtual LoadableWeights& weights() = 0;
  // Bytes of a parameter in memory, without padding.
  virtual std::int64_t bytes_of(const ParameterSpec& spec) const = 0;

  // The passes of training, in the runner's shape. INT8 weights have none.
  virtual EvaluationPass& evaluation() = 0;
  // Reserves memory in the plan; usable after allocate() and clear(). The runner outlives the pass.
  // `cache`: the dtype of keys and values: that of the model, int8, or for fp32 any other.
  virtual std::unique_ptr<GenerationPass> make_pass(Dtype cache, const BatchShape& shape,
                                                    const Int8Pass& pass = {}) = 0;
};

// The shape of a runner that is only used for passes of generation.
inline RunShape decode_shape(bool int8_weights = false) {
  return {.B = 1, .T = 1, .training = false, .int8_weights = int8_weights};
}

std::unique_ptr<GenerationRunner> make_generation_runner(Dtype dtype, const ModelConfig& config,
                                                         const RunShape& shape);

}  // namespace llmc
