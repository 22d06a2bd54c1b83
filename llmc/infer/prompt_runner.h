// Runs batches of whole sequences through the model of generation, as prompts, with the interface
// of a ModelRunner: evaluation scores what generation computes, such as INT8 weights and key-value
// caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "llmc/config/run_shape.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/model/batch_stage.h"
#include "llmc/model/evaluation_pass.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/classifier.h"

namespace llmc {

class PromptRunner final : public EvaluationPass {
 public:
  // The batch of generation for evaluations of this shape: B, T and logits_rows.
  static BatchShape batch_shape(const RunShape& shape) {
    return {.slots = shape.B,
            .capacity = shape.T,
            .chunk = shape.rows(),
            .logits_rows = shape.chunk_rows()};
  }

  // Reserves memory in the plan; usable after plan.allocate(). `model` has the shape
  // batch_shape(shape); it and the context outlive the runner.
  PromptRunner(GenerationPass& model, Context& context, const RunShape& shape, MemoryPlan& plan)
      : model_(model), context_(context), shape_(shape) {
    plan.reserve("batch", targets_, shape.rows());
    plan.reserve("logits", losses_, shape.rows());
  }

  const Gpt2Config& config() const override { return model_.config(); }
  const RunShape& shape() const override { return shape_; }
  Context& context() override { return context_; }
  std::int64_t max_sequences() const override { return shape_.B; }

  // Throws if the input of a product is not finite; the error names its layer and token.
  void run(const PreparedBatch& prepared) override {
    const Batch& batch = prepared.batch;
    last_targets_ = batch.targets;
    std::vector<PromptPiece> pieces;
    for (std::int64_t b = 0; b < batch.B; ++b) {
      model_.clear_faults(b);
      pieces.push_back({.slot = b,
                        .tokens = std::span(batch.inputs)
                                      .subspan(static_cast<std::size_t>(b * batch.T),
                                               static_cast<std::size_t>(batch.T))});
    }
    model_.read_prompts(pieces);
    for (std::int64_t b = 0; b < batch.B; ++b) {
      const std::string fault = model_.fault_text(b);
      if (!fault.empty()) fail("sequence " + std::to_string(b) + " of a batch: " + fault);
    }
  }

  void read_losses(std::vector<float>& losses) override {
    const std::vector<std::int32_t>& targets = last_targets_;
    const std::int64_t rows = std::ssize(targets);
    Stream& stream = model_.stream();
    copy_to_device(targets_.data, targets.data(), rows, stream);
    for (std::int64_t first = 0; first < rows; first += shape_.chunk_rows()) {
      const std::int64_t count = std::min(shape_.chunk_rows(), rows - first);
      classifier_loss<float>(row_range(losses_, first, count), model_.logits_of(first, count),
                             row_range(targets_, first, count), config().vocabulary, stream);
    }
    losses.resize(targets.size());
    copy_to_host(losses.data(), losses_.data, rows, stream);
    stream.synchronize();
  }

  void read_logits(std::int64_t first, std::int64_t count, std::vector<float>& logits) override {
    const Tensor<const float, 2> values = model_.logits_of(first, count);
    const std::int64_t V = config().vocabulary, columns = values.shape[1];
    logits.resize(static_cast<std::size_t>(count * V));
    for (std::int64_t i = 0; i < count; ++i)
      copy_to_host(logits.data() + i * V, values.data + i * columns, V, model_.stream());
    model_.stream().synchronize();
  }
  void read_logits(std::int64_t row, std::vector<float>& logits) override {
    read_logits(row, 1, logits);
  }

 private:
  GenerationPass& model_;
  Context& context_;
  RunShape shape_;
  Tensor<std::int32_t, 1> targets_;
  Tensor<float, 1> losses_;
  std::vector<std::int32_t> last_targets_;  // of the last run()
};

}  // namespace llmc
