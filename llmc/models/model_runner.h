// A model with its activations, its staging of batches, and a context.
//
// With several pipeline ranks, all of them run the same batches: each computes its own stages, and
// sends the residual stream to the next rank. Losses and logits are computed by the last rank, and
// all of them get them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "llmc/device/rows.h"
#include "llmc/models/batch_stage.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/models/gpt2/activations.h"
#include "llmc/models/gpt2/gpt2.h"

namespace llmc {

template <class T>
class ModelRunner final : public EvaluationPass {
 public:
  // Reserves memory in the plan, including the context's tensor group and, for training, its
  // scratch; usable after plan.allocate(). All references must outlive the runner.
  ModelRunner(const ModelConfig& config, const ParameterTable& table, ParameterSource& source,
              const RunShape& shape, Context& context, MemoryPlan& plan)
      : context_(reserve(context, shape, config.channels, plan)),
        shape_(shape),
        kept_(table, shape),
        recomputed_(config, shape, kept_, context.tensor, plan),
        offloaded_(config, shape, kept_, context, plan),
        slots_(make_slots(config, plan)),
        model_(config, table, source, shape, context.tensor, plan),
        batches_(shape.B, shape.T, 1 + shape.pipeline.batches(pipeline_rank()), plan) {
    if (!shape.pipeline.single()) {
      plan.reserve("staging", losses_, shape.rows());
      plan.reserve("staging", logits_, config.num_logits());
    }
    context.quantization.reserve(table, shape, sizeof(T), plan);
    context.adapters.reserve(table, shape, sizeof(T), plan);
    if (shape.offload.uses(Place::disk)) {
      plan.reserve_outside(Place::host, "disk buffers", DiskPieces::kMemory,
                           [&context](std::int64_t) { context.transfers().disk_pieces(); });
    }
    if (!shape.training) return;
    const Pipeline& pipeline = shape.pipeline;
    require(without_backward_below(pipeline, table.first_learning_block() - 1).first_backward ==
                pipeline.first_backward,
            "the schedule has backward passes of other stages than those that learn");
    plan.reserve("activations", sent_gradients_, shape.pipeline.sent_gradients(pipeline_rank()),
                 context.tensor.rows_of_rank(shape.rows()).stored, config.channels);
    plan.reserve("backward buffers", context.scratch, model_.scratch_size());
  }

  const ModelConfig& config() const override { return model_.config(); }
  const RunShape& shape() const override { return shape_; }
  Context& context() override { return context_; }
  std::int64_t max_sequences() const override { return shape_.rows(); }
  Gpt2<T>& model() { return model_; }
  // Those of a pass through the model. A pipeline rank has several slots of them: pipeline_runner.h
  // uses them in a training step, all other passes the first one.
  Activations<T>& activations(std::size_t slot = 0) { return *slots_[slot]; }
  std::size_t slots() const { return slots_.size(); }
  // (own, C) a buffer for a gradient that is sent to the pipeline rank of the stage before.
  Tensor<T, 2> sent_gradient(std::size_t buffer, const RankRows& rows) const {
    const std::int64_t C = sent_gradients_.shape[2], size = sent_gradients_.shape[1] * C;
    return {sent_gradients_.data + static_cast<std::int64_t>(buffer) * size, {rows.own, C}};
  }
  // Number of these buffers.
  std::size_t sent_gradients() const { return static_cast<std::size_t>(sent_gradients_.shape[0]); }
  BatchStage& batches() { return batches_; }

  // Copies a batch to device memory. The result is valid until the second put() after this one.
  DeviceBatch put(const PreparedBatch& batch) { return batches_.put(batch, context_.stream); }

  template <class Attend = OwnAttention>
  void forward(const DeviceBatch& batch, const Attend& attend = {},
               const PassOptions& options = {}) {
    const RankRows rows = context_.tensor.rows_of_rank(batch.rows());
    for (const Stage& stage : model_.stages()) {
      if (!stage.embedding) {
        context_.ranks.receive_activations(flat(model_.stage_input(activations(), rows)),
                                           context_.stream);
      }
      model_.forward(stage, activations(), batch, context_, options, attend);
      if (!stage.head) {
        context_.ranks.send_activations(flat(model_.stage_output(activations(), rows)),
                                        context_.stream);
      }
    }
    last_rows_ = batch.rows();
  }
  void run(const PreparedBatch& batch) override {
    last_batch_ = put(batch);
    forward(last_batch_, OwnAttention(), {.has_backward = false});
  }
  // The backward pass of the last forward pass, with the same options. Adds to the parameter
  // gradients of the model's source. Only without pipeline ranks.
  void backward(const DeviceBatch& batch, const LossOptions& loss,
                const PassOptions& options = {}) {
    model_.backward(model_.whole(), activations(), batch, loss, context_, options);
  }
  // Both in one call.
  void forward_backward(const DeviceBatch& batch, const LossOptions& loss,
                        const PassOptions& options = {}) {
    model_.forward_backward(activations(), batch, loss, context_, options);
    last_rows_ = batch.rows();
  }

  // ---- results of the last forward pass, in host memory; all pipeline ranks call these ----

  void read_losses(std::vector<float>& losses) override { read_losses(last_batch_, losses); }
  void read_logits(std::int64_t row, std::vector<float>& logits) override {
    copy_logits(row, host_logits_);
    to_floats(host_logits_, logits);
  }
  void read_logits(std::int64_t first, std::int64_t count, std::vector<float>& logits) override {
    copy_logits(first, count, host_logits_);
    to_floats(host_logits_, logits);
  }
  void read_logits_of(std::span<const std::int64_t> rows, std::vector<float>& logits) override {
    copy_logits(rows, host_logits_);
    to_floats(host_logits_, logits);
  }

  // (B*T) losses of the batch.
  void read_losses(const DeviceBatch& batch, std::vector<float>& losses) {
    Tensor<const float, 1> own;
    if (model_.has_head()) own = model_.losses(activations(), batch, context_);
    losses.resize(static_cast<std::size_t>(batch.rows()));
    copy_to_host(losses.data(), of_last_rank<float>(own, losses_, batch.rows()), batch.rows(),
                 context_.stream);
    context_.ranks.synchronize(context_.stream);
  }
  // (V) logits of one row in the model's dtype.
  void copy_logits(std::int64_t row, std::vector<T>& logits) {
    copy_logits(std::span<const std::int64_t>(&row, 1), logits);
  }
  // (rows, V) logits of single rows in the model's dtype.
  void copy_logits(std::span<const std::int64_t> rows, std::vector<T>& logits) {
    const std::int64_t V = config().num_logits();
    logits.resize(rows.size() * static_cast<std::size_t>(V));
    const auto copy = [&](std::size_t i, const Tensor<const T, 1>& own) {
      copy_to_host(logits.data() + i * static_cast<std::size_t>(V),
                   of_last_rank<T>(own, logits_, V), V, context_.stream);
    };
    if (model_.has_head()) {
      model_.logits_of_rows(activations(), last_rows_, rows, context_, copy);
    } else {
      for (std::size_t i = 0; i < rows.size(); ++i) copy(i, {});
    }
    context_.ranks.synchronize(context_.stream);
  }
  // (count, V) logits of rows in the model's dtype, as the other read_logits().
  void copy_logits(std::int64_t first, std::int64_t count, std::vector<T>& logits) {
    require(first >= 0 && count >= 0 && first + count <= last_rows_,
            "the last forward pass did not have these rows");
    const auto values = model_.logits_of_rows(activations(), last_rows_, first, count, context_);
    const std::int64_t V = config().num_logits(), columns = values.shape[1];
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

  static void to_floats(const std::vector<T>& values, std::vector<float>& floats) {
    floats.resize(values.size());
    std::ranges::transform(values, floats.begin(), [](const T& x) { return to_float(x); });
  }

  int pipeline_rank() const { return context_.ranks.pipeline_rank(); }

  // A slot has room for the activations of any of the rank's stages.
  std::vector<std::unique_ptr<Activations<T>>> make_slots(const ModelConfig& config,
                                                          MemoryPlan& plan) {
    const std::vector<Stage> stages = stages_of(shape_.pipeline, pipeline_rank(), config.layers);
    std::vector<std::unique_ptr<Activations<T>>> slots;
    const int count = shape_.training ? shape_.pipeline.slots(pipeline_rank()) : 1;
    for (int i = 0; i < count; ++i) {
      slots.push_back(std::make_unique<Activations<T>>(
          config, shape_, stages, kept_, context_.tensor, recomputed_, offloaded_, plan));
    }
    return slots;
  }

  // Returns n results: `own` of the last pipeline rank, which other ranks receive in `buffer`.
  template <class U>
  const U* of_last_rank(const Tensor<const U, 1>& own, const Tensor<U, 1>& buffer, std::int64_t n) {
    if (shape_.pipeline.single()) return own.data;
    if (model_.has_head()) copy_on_device(buffer.data, own.data, n, context_.stream);
    context_.ranks.share_from_last(make_tensor(buffer.data, n), context_.stream);
    return buffer.data;
  }

  Context& context_;
  RunShape shape_;
  KeptBlocks kept_;
  RecomputeBuffers<T> recomputed_;
  OffloadedBlocks<T> offloaded_;
  std::vector<std::unique_ptr<Activations<T>>> slots_;
  Gpt2<T> model_;
  BatchStage batches_;
  Tensor<T, 3> sent_gradients_;  // (buffers, own, C)
  Tensor<float, 1> losses_;      // of a batch, with several pipeline ranks
  Tensor<T, 1> logits_;          // the same, of one row
  std::int64_t last_rows_ = 0;   // of the last forward pass
  DeviceBatch last_batch_;       // of the last run()
  std::vector<T> host_logits_;
};

}  // namespace llmc
