// A model with its activations, its staging of batches, and a context.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/model/activations.h"
#include "llmc/model/batch_stage.h"
#include "llmc/model/gpt2.h"

namespace llmc {

template <class T>
class ModelRunner {
 public:
  // Reserves memory in the plan, including the context's tensor group and, for training, its
  // scratch; usable after plan.allocate(). All references must outlive the runner.
  ModelRunner(const Gpt2Config& config, const ParameterTable& table, ParameterSource& source,
              const RunShape& shape, Context& context, MemoryPlan& plan)
      : context_(reserve(context, shape, config.channels, plan)),
        shape_(shape),
        activations_(config, shape, context.tensor, plan),
        model_(config, table, source, shape, context.tensor, plan),
        stage_(shape.B, shape.T, plan) {
    context.quantization.reserve(table, shape, sizeof(T), plan);
    if (!shape.training) return;
    plan.reserve("backward buffers", context.scratch, model_.scratch_size());
  }

  const Gpt2Config& config() const { return model_.config(); }
  const RunShape& shape() const { return shape_; }
  Context& context() { return context_; }
  Gpt2<T>& model() { return model_; }
  Activations<T>& activations() { return activations_; }

  // Copies a batch to device memory. The result is valid until the second put() after this one.
  DeviceBatch put(const PreparedBatch& batch) { return stage_.put(batch, context_.stream); }

  template <class Attend = OwnAttention>
  void forward(const DeviceBatch& batch, const Attend& attend = {},
               const PassOptions& options = {}) {
    model_.forward(activations_, batch, context_, options, attend);
    last_rows_ = batch.rows();
  }
  // The backward pass of the last forward pass, with the same options. Adds to the parameter
  // gradients of the model's source.
  void backward(const DeviceBatch& batch, const LossOptions& loss,
                const PassOptions& options = {}) {
    model_.backward(model_.whole(), activations_, batch, loss, context_, options);
  }
  // Both in one call.
  void forward_backward(const DeviceBatch& batch, const LossOptions& loss,
                        const PassOptions& options = {}) {
    model_.forward_backward(activations_, batch, loss, context_, options);
    last_rows_ = batch.rows();
  }

  // ---- results of the last forward pass, in host memory ----

  // (B*T) losses of the batch.
  void read_losses(const DeviceBatch& batch, std::vector<float>& losses) {
    const auto values = model_.losses(activations_, batch, context_);
    losses.resize(static_cast<std::size_t>(batch.rows()));
    copy_to_host(losses.data(), values.data, batch.rows(), context_.stream);
    context_.ranks.synchronize(context_.stream);
  }
  // (V) logits of one row.
  void read_logits(std::int64_t row, std::vector<T>& logits) {
    const auto values = model_.logits_of_row(activations_, last_rows_, row, context_);
    logits.resize(static_cast<std::size_t>(config().vocabulary));
    copy_to_host(logits.data(), values.data, config().vocabulary, context_.stream);
    context_.ranks.synchronize(context_.stream);
  }
  // (count, V) logits of the rows [first, first + count), at most shape().chunk_rows(). Only for a
  // model on one rank.
  void read_logits(std::int64_t first, std::int64_t count, std::vector<T>& logits) {
    require(first >= 0 && count >= 0 && first + count <= last_rows_,
            "the last forward pass did not have these rows");
    const auto values = model_.logits_of_rows(activations_, last_rows_, first, count, context_);
    const std::int64_t V = config().vocabulary, columns = values.shape[1];
    logits.resize(static_cast<std::size_t>(count * V));
    for (std::int64_t i = 0; i < count; ++i) {
      copy_to_host(logits.data() + i * V, values.data + i * columns, V, context_.stream);
    }
    context_.ranks.synchronize(context_.stream);
  }

 private:
  static Context& reserve(Context& context, const RunShape& shape, std::int64_t C,
                          MemoryPlan& plan) {
    context.tensor.reserve(shape, C, sizeof(T), plan);
    return context;
  }

  Context& context_;
  RunShape shape_;
  Activations<T> activations_;
  Gpt2<T> model_;
  BatchStage stage_;
  std::int64_t last_rows_ = 0;  // of the last forward pass
};

}  // namespace llmc
