// Runs batches of whole sequences through the model of generation, as prompts, with the interface
// of a ModelRunner: evaluation scores what generation computes, such as INT8 weights and key-value
// caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/device/tensor.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/models/batch_stage.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"

namespace llmc {

class PromptRunner final : public EvaluationPass {
 public:
  // The batch of generation for evaluations of this shape: B, T and logits_rows.
  static BatchShape batch_shape(const RunShape& shape);

  // Reserves memory in the plan; usable after plan.allocate(). `model` has the shape
  // batch_shape(shape); it and the context outlive the runner.
  PromptRunner(GenerationPass& model, Context& context, const RunShape& shape, MemoryPlan& plan);

  const ModelConfig& config() const override { return model_.config(); }
  const RunShape& shape() const override { return shape_; }
  Context& context() override { return context_; }
  std::int64_t max_sequences() const override { return shape_.B; }

  // Throws if the input of a product is not finite; the error names its layer and token.
  void run(const PreparedBatch& prepared) override;

  void read_losses(std::vector<float>& losses) override;

  void read_logits(std::int64_t first, std::int64_t count, std::vector<float>& logits) override;
  void read_logits(std::int64_t row, std::vector<float>& logits) override {
    read_logits(row, 1, logits);
  }
  void read_logits_of(std::span<const std::int64_t> rows, std::vector<float>& logits) override;

 private:
  GenerationPass& model_;
  Context& context_;
  RunShape shape_;
  Tensor<std::int32_t, 1> targets_;
  Tensor<float, 1> losses_;
  std::vector<std::int32_t> last_targets_;  // of the last run()
};

}  // namespace llmc
