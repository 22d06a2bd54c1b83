// The state of a training run in one dtype (run_state.h): what this rank keeps (kept_state.h), the
// loss, and the optimizer step over it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/models/engine.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/parallel/kept_state.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/sharded_parameters.h"

namespace llmc {

// Initial value of the dynamic loss scale of fp16, as in PyTorch's GradScaler.
inline constexpr float kInitialLossScale = 65536;

template <class T>
class TrainingState final : public RunState {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). Without shape.training, it reserves
  // only the weights and the loss. `table` and `context` must outlive the state.
  TrainingState(const ParameterTable& table, const RunShape& shape, Context& context,
                MemoryPlan& plan)
      : table_(table), ranks_(context.ranks), kept_(table, shape, context, plan) {
    source_ = std::make_unique<ShardedParameters<T>>(kept_.weights(), kept_.codes(),
                                                     shape.training ? &kept_.gradients() : nullptr,
                                                     context.stream);
  }
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // Sets everything to zero, including gaps and padding, which stay zero. Only the loss scale of
  // fp16 starts at kInitialLossScale. Call after plan.allocate().
  void clear(Stream& stream) {
    kept_.clear(stream);
    if (!kept_.training()) return;
    kept_.optimizer().begin_step(1, stream);
    set_optimizer_state(initial_optimizer_state(kInitialLossScale), stream);
  }

  OptimizerState initial_optimizer_state(float loss_scale) const override {
    OptimizerState state{};
    if constexpr (std::is_same_v<T, fp16>) state.loss_scale = loss_scale;
    return state;
  }

  void initialise(std::uint64_t seed, Stream& stream, bool only_added = false) override {
    for (const ParameterSpec& spec : table().specs()) {
      if (!spec.is_held || (only_added && !is_added(spec))) continue;
      kept_.initialise(spec, seed, stream);
    }
    kept_.weights().all_gather(stream, true);
  }

  void enable_stochastic_rounding(std::uint64_t seed) override {
    kept_.optimizer().enable_stochastic_rounding(seed);
  }

  ParameterSource& source() { return *source_; }
  Dtype dtype() const override { return kDtypeOf<T>; }
  const ParameterTable& table() const override { return table_; }
  const ShardLayout& layout() const override { return kept_.layout(); }
  const Ranks& ranks() const override { return ranks_; }
  Tensor<float, 1> loss() const override { return kept_.loss(); }
  const float* loss_scale() const override {
    return std::is_same_v<T, fp16> && kept_.training() ? &kept_.optimizer().state().data->loss_scale
                                                       : nullptr;
  }

  // ---- a step ----

  void begin_step(Stream& stream, std::int64_t micro_batches = 1) override {
    const ProfileScope scope("zero gradients", stream,
                             Work{.flops = 0, .bytes = kept_.gradients().bytes_to_clear()});
    kept_.optimizer().begin_step(micro_batches, stream);
    fill_zero(kept_.loss().data, 1, stream);
  }

  void finish_gradients(Stream& stream) override {
    if (ranks_.single()) return kept_.gradients().finish();
    ranks_.communicate(stream, [&] { ranks_.data().all_reduce(kept_.loss(), ranks_.stream()); });
    if (ranks_.mesh().pipeline_ranks > 1) ranks_.all_reduce_over_pipeline(kept_.loss(), stream);
    kept_.gradients().finish();
  }

  void measure_gradients(const OptimizerOptions& options, Stream& stream) override {
    kept_.optimizer().measure_gradients(options, kept_.loss(), stream);
  }

  void apply_gradients(const OptimizerOptions& options, double learning_rate,
                       Stream& stream) override {
    const ProfileScope scope("optimizer", stream);
    kept_.optimizer().apply(options, learning_rate, kept_.loss(), stream);
    kept_.weights().all_gather(stream);
  }

  void restore_rounding(Stream& stream) override {
    if constexpr (!std::is_same_v<T, float>) {
      const std::int32_t updates = optimizer_state(stream).updates;
      if (!kept_.optimizer().rounds_stochastically() || updates == 0) return;
      kept_.round_masters(updates, stream);
      kept_.weights().all_gather(stream);
    }
  }

  // ---- copies from and to host memory; each is finished on return ----

  void require_representable(const ParameterSpec& spec,
                             std::span<const float> values) const override {
    kept_.require_representable(spec, values);
  }
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) override {
    kept_.set_weight(spec, values, stream);
  }
  ElementRange kept_weights(const ParameterSpec& spec) const override {
    return kept_.kept_weights(spec);
  }
  void set_kept_weights(const ParameterSpec& spec, const float* values, Stream& stream) override {
    kept_.set_kept_weights(spec, values, stream);
  }
  void set_moments(const ParameterSpec& spec, const float* first, const float* second,
                   Stream& stream) override {
    kept_.set_moments(spec, first, second, stream);
  }
  ElementRange kept_moments(const ParameterSpec& spec) const override {
    return kept_.kept_moments(spec);
  }
  void set_kept_moments(const ParameterSpec& spec, const float* first, const float* second,
                        Stream& stream) override {
    kept_.set_kept_moments(spec, first, second, stream);
  }
  bool keeps_whole_weight(const ParameterSpec& spec) const override {
    return kept_.keeps_whole_weight(spec);
  }
  void collect_weight(const ParameterSpec& spec, int root, float* values, Stream& stream) override {
    kept_.collect_weight(spec, root, values, stream);
  }
  void get_gradient(const ParameterSpec& spec, float* values, Stream& stream) override {
    kept_.get_gradient(spec, values, stream);
  }
  void get_moments(const ParameterSpec& spec, float* first, float* second,
                   Stream& stream) override {
    kept_.get_moments(spec, first, second, stream);
  }
  bool keeps_moments_on_disk() const override { return kept_.keeps_moments_on_disk(); }
  void get_kept_moments(const ParameterSpec& spec, float* first, float* second,
                        Stream& stream) override {
    kept_.get_kept_moments(spec, first, second, stream);
  }
  void visit_kept(const VisitKept& visit) override { kept_.visit_kept(visit); }
  OptimizerState optimizer_state(Stream& stream) override {
    OptimizerState state{};
    copy_to_host(&state, kept_.optimizer().state().data, 1, stream);
    ranks_.synchronize(stream);
    return state;
  }
  void set_optimizer_state(const OptimizerState& state, Stream& stream) override {
    copy_to_device(kept_.optimizer().state().data, &state, 1, stream);
    stream.synchronize();
  }
  float loss_value(Stream& stream) override {
    float loss = 0;
    copy_to_host(&loss, kept_.loss().data, 1, stream);
    ranks_.synchronize(stream);
    return loss;
  }

 private:
  const ParameterTable& table_;
  Ranks& ranks_;
  KeptState<T> kept_;
  std::unique_ptr<ShardedParameters<T>> source_;
};

}  // namespace llmc
