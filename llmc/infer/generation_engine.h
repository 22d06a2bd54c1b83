// The generation runner of one dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/infer/model_pass.h"
#include "llmc/models/engine.h"

namespace llmc {

template <class T>
class GenerationEngine final : public GenerationRunner {
 public:
  GenerationEngine(const ModelConfig& config, const RunShape& shape) : engine_(config, shape) {}

  Dtype dtype() const override { return kDtypeOf<T>; }
  const ModelConfig& config() const override { return engine_.config(); }
  Context& context() override { return engine_.context(); }
  MemoryPlan& memory() override { return engine_.memory(); }
  void allocate() override { engine_.allocate(); }
  Weights<T>& weights() override { return engine_.state(); }
  std::int64_t bytes_of(const ParameterSpec& spec) const override {
    return engine_.state().bytes_of(spec);
  }
  EvaluationPass& evaluation() override { return engine_.runner(); }

  std::unique_ptr<GenerationPass> make_pass(Dtype cache, const BatchShape& shape,
                                            const Int8Pass& pass = {}) override {
    if (cache == kDtypeOf<T>) return make_pass<T>(shape, pass);
    if (cache == Dtype::int8) return make_pass<std::int8_t>(shape, pass);
    if constexpr (std::is_same_v<T, float>) {
      if (cache == Dtype::bf16) return make_pass<bf16>(shape, pass);
      if (cache == Dtype::fp16) return make_pass<fp16>(shape, pass);
    }
    fail(std::string("a cache in ") + dtype_name(cache) + " does not fit a model in " +
             dtype_name(kDtypeOf<T>),
         "use the dtype of the model, int8, or a model in fp32");
  }

 private:
  template <class KV>
  std::unique_ptr<GenerationPass> make_pass(const BatchShape& shape, const Int8Pass& pass) {
    return std::make_unique<ModelPass<T, KV>>(engine_.runner().model(), engine_.context(), shape,
                                              engine_.memory(), pass);
  }

  Engine<T> engine_;
};

}  // namespace llmc
