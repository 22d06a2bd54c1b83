// The state of a training run in one dtype (run_state.h), and the optimizer step over it. Of the
// part of the model that its tensor rank has, a rank keeps what the shard layout gives it
// (parallel/shard_layout.h); one rank keeps everything. Frozen parameters have only weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/models/engine.h"
#include "llmc/models/round_weight.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/random_fill.h"
#include "llmc/parallel/gradient_buckets.h"
#include "llmc/parallel/gradient_norm.h"
#include "llmc/parallel/part_collector.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/sharded_parameters.h"
#include "llmc/parallel/weight_buckets.h"

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
      : table_(table),
        ranks_(context.ranks),
        layout_(table, shape.zero_stage, ranks_.mesh().shard_ranks,
                ranks_.mesh().shard_rank(ranks_.rank())),
        training_(shape.training),
        weights_(layout_, ranks_, plan),
        collector_(layout_, ranks_, plan) {
    plan.reserve("staging", loss_, 1);
    if (training_) {
      const std::int64_t n = layout_.trainable_shard_size();
      if constexpr (!std::is_same_v<T, float>) plan.reserve("master weights", master_, n);
      gradients_ = std::make_unique<GradientBuckets>(
          layout_, table.head(), shape.uses_sequence_parallelism(ranks_.mesh().tensor_ranks),
          ranks_, plan);
      plan.reserve("moments", first_moment_, n);
      plan.reserve("moments", second_moment_, n);
      plan.reserve("staging", optimizer_, 1);
      norm_ = std::make_unique<GradientNorm>(table, layout_, ranks_, plan);
    }
    source_ = std::make_unique<ShardedParameters<T>>(weights_, gradients_.get(), context.stream);
  }
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // Sets everything to zero, including gaps and padding, which stay zero. Only the loss scale of
  // fp16 starts at kInitialLossScale. Call after plan.allocate().
  void clear(Stream& stream) {
    fill_zero(weights_.kept().data, weights_.kept().size(), stream);
    fill_zero(loss_.data, 1, stream);
    if (!training_) return;
    if (master_.size() > 0) fill_zero(master_.data, master_.size(), stream);
    gradients_->begin_step(1, stream);
    fill_zero(first_moment_.data, first_moment_.size(), stream);
    fill_zero(second_moment_.data, second_moment_.size(), stream);
    set_optimizer_state(initial_optimizer_state(kInitialLossScale), stream);
  }

  OptimizerState initial_optimizer_state(float loss_scale) const override {
    OptimizerState state{};
    if constexpr (std::is_same_v<T, fp16>) state.loss_scale = loss_scale;
    return state;
  }

  void initialise(std::uint64_t seed, Stream& stream) override {
    for (const ParameterSpec& spec : table().specs()) {
      if (spec.is_held) initialise(spec, seed, stream);
    }
    weights_.all_gather(stream, true);
  }

  void enable_stochastic_rounding(std::uint64_t seed) override { rounding_seed_ = seed; }

  ParameterSource& source() { return *source_; }
  Dtype dtype() const override { return kDtypeOf<T>; }
  const ParameterTable& table() const override { return table_; }
  const ShardLayout& layout() const { return layout_; }
  const Ranks& ranks() const override { return ranks_; }
  Tensor<float, 1> loss() const override { return loss_; }
  const float* loss_scale() const override {
    return std::is_same_v<T, fp16> && training_ ? &optimizer_.data->loss_scale : nullptr;
  }

  // ---- a step ----

  void begin_step(Stream& stream, std::int64_t micro_batches = 1) override {
    const ProfileScope scope("zero gradients", stream, memory_traffic(gradients_->kept()));
    gradients_->begin_step(micro_batches, stream);
    fill_zero(loss_.data, 1, stream);
  }

  void finish_gradients(Stream& stream) override {
    if (ranks_.single()) return;
    ranks_.communicate(stream, [&] { ranks_.data().all_reduce(loss_, ranks_.stream()); });
    if (ranks_.mesh().pipeline_ranks > 1) ranks_.all_reduce_over_pipeline(loss_, stream);
    gradients_->finish();
  }

  void apply_gradients(const OptimizerOptions& options, double learning_rate,
                       Stream& stream) override {
    const ProfileScope scope("optimizer", stream);
    measure_gradients(options, stream);
    {
      const ProfileScope update_scope("adamw", stream, update_bytes());
      begin_adamw(optimizer_.data, options, stream);
      for (const ParameterSpec& spec : table().specs()) {
        if (spec.is_held && spec.trainable) update(spec, options, learning_rate, stream);
      }
    }
    weights_.all_gather(stream);
  }

  void restore_rounding(Stream& stream) override {
    if constexpr (!std::is_same_v<T, float>) {
      const std::int32_t updates = optimizer_state(stream).updates;
      if (!rounding_seed_ || updates == 0) return;
      for (const ParameterSpec& spec : table().specs()) {
        if (!spec.is_held || !spec.trainable) continue;
        const OwnedPart part = layout_.own_part(spec);
        stochastic_convert(weights_.owned(part), static_cast<const float*>(master(part)), part.size,
                           rounding_of(spec, part), updates, stream);
      }
      weights_.all_gather(stream);
    }
  }

  // ---- copies from and to host memory; each is finished on return ----

  void broadcast(std::vector<float>& values, Stream& stream) override {
    collector_.broadcast(values, stream);
  }

  void require_representable(const ParameterSpec& spec,
                             std::span<const float> values) const override {
    llmc::require_representable<T>(spec, values);
  }
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) override {
    require_representable(spec, {values, static_cast<std::size_t>(spec.size())});
    if (!spec.is_held) return;
    with_local_values(spec, values,
                      [&](const float* local) { set_local_weight(spec, local, stream); });
  }
  void set_moments(const ParameterSpec& spec, const float* first, const float* second,
                   Stream& stream) override {
    if (!spec.is_held || !spec.trainable) return;
    const OwnedPart part = layout_.own_values(spec);
    const auto set_moment = [&](const Tensor<float, 1>& moments, const float* values) {
      with_local_values(spec, values, [&](const float* local) {
        set(moments.data + part.shard_offset, part, local, stream);
      });
    };
    set_moment(first_moment_, first);
    set_moment(second_moment_, second);
  }

  void get_weight(const ParameterSpec& spec, float* values, Stream& stream) override {
    if (spec.trainable) {
      collector_.collect(spec, values, stream, [&](const OwnedPart& part) { return master(part); });
    } else {
      collector_.collect<T>(spec, values, stream,
                            [&](const OwnedPart& part) { return weights_.owned(part); });
    }
  }
  void get_gradient(const ParameterSpec& spec, float* values, Stream& stream) override {
    if (!spec.trainable) return set_zeros(spec, values);
    collector_.collect(spec, values, stream,
                       [&](const OwnedPart& part) { return gradients_->owned(part); });
  }
  void get_moments(const ParameterSpec& spec, float* first, float* second,
                   Stream& stream) override {
    if (!spec.trainable) {
      set_zeros(spec, first);
      return set_zeros(spec, second);
    }
    const auto moment_of = [](const Tensor<float, 1>& moments) {
      return [&moments](const OwnedPart& part) { return moments.data + part.shard_offset; };
    };
    collector_.collect(spec, first, stream, moment_of(first_moment_));
    collector_.collect(spec, second, stream, moment_of(second_moment_));
  }
  void visit_kept(const VisitKept& visit_bytes) const override {
    const auto visit = [&](const char* kind, const ParameterSpec& spec, const auto* values,
                           std::int64_t count, bool whole) {
      const std::span numbers(values, static_cast<std::size_t>(count));
      visit_bytes(kind, spec, std::as_bytes(numbers), whole);
    };
    for (const ParameterSpec& spec : table().specs()) {
      const OwnedPart part = spec.is_held ? layout_.own_values(spec) : OwnedPart();
      if (layout_.shards_weights()) {
        visit("weights", spec, weights_.owned(part), part.size, false);
      } else {
        visit("weights", spec, weights_.whole(spec), spec.is_held ? spec.part.size() : 0, true);
      }
      if (!spec.trainable) continue;
      const bool whole = layout_.shards() == 1;
      if constexpr (!std::is_same_v<T, float>) {
        visit("master weights", spec, master(part), part.size, whole);
      }
      visit("first moments", spec, first_moment_.data + part.shard_offset, part.size, whole);
      visit("second moments", spec, second_moment_.data + part.shard_offset, part.size, whole);
    }
  }
  OptimizerState optimizer_state(Stream& stream) override {
    OptimizerState state{};
    copy_to_host(&state, optimizer_.data, 1, stream);
    ranks_.synchronize(stream);
    return state;
  }
  void set_optimizer_state(const OptimizerState& state, Stream& stream) override {
    copy_to_device(optimizer_.data, &state, 1, stream);
    stream.synchronize();
  }
  float loss_value(Stream& stream) override {
    float loss = 0;
    copy_to_host(&loss, loss_.data, 1, stream);
    ranks_.synchronize(stream);
    return loss;
  }

 private:
  // Whether a parameter has master weights. fp32 weights are their own.
  bool has_master(const ParameterSpec& spec) const {
    return std::is_same_v<T, float> || (training_ && spec.trainable);
  }
  // Those of a part that this rank owns.
  float* master(const OwnedPart& part) const {
    if constexpr (std::is_same_v<T, float>) {
      return weights_.owned(part);
    } else {
      return master_.data + part.shard_offset;
    }
  }

  StochasticRounding rounding_of(const ParameterSpec& spec, const OwnedPart& part) const {
    return {
        .seed = *rounding_seed_, .tensor = spec.id, .index = spec.part.index, .first = part.first};
  }

  void update(const ParameterSpec& spec, const OptimizerOptions& options, double learning_rate,
              Stream& stream) {
    const OwnedPart part = layout_.own_part(spec);
    const auto apply = [&](T* weights, const auto& rounding) {
      adamw<T>(master(part), weights, first_moment_.data + part.shard_offset,
               second_moment_.data + part.shard_offset, gradients_->owned(part), part.size, options,
               learning_rate, spec.weight_decay, optimizer_.data, stream, rounding);
    };
    if constexpr (std::is_same_v<T, float>) {
      apply(nullptr, NearestRounding{});  // fp32 weights are their own master weights
    } else if (rounding_seed_) {
      apply(weights_.owned(part), rounding_of(spec, part));
    } else {
      apply(weights_.owned(part), NearestRounding{});
    }
  }

  // Without master weights, the values are rounded chunk by chunk: the memory plan has no room for
  // a large tensor in fp32.
  void initialise(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
    const OwnedPart part = layout_.own_values(spec);
    constexpr std::int64_t kChunk = 1 << 16;
    const std::int64_t step = has_master(spec) ? part.size : std::min(part.size, kChunk);
    const Buffer<float> chunk(has_master(spec) ? 0 : step);
    for (std::int64_t first = 0; first < part.size; first += step) {
      const std::int64_t n = std::min(step, part.size - first);
      float* const values = has_master(spec) ? master(part) : chunk.data();
      fill_initial(values, n, part.first + first, spec, seed, stream);
      if constexpr (!std::is_same_v<T, float>) {
        convert(weights_.owned(part) + first, static_cast<const float*>(values), n, stream);
      }
    }
    if (!has_master(spec)) stream.synchronize();
  }

  // Initial values of elements first to first + n - 1 of this rank's part of a parameter.
  static void fill_initial(float* values, std::int64_t n, std::int64_t first,
                           const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
    switch (spec.initializer) {
      case Initializer::normal:
        return normal_fill(values, n, first, spec.part.index, seed, spec.id, 0.0f, spec.stddev,
                           stream);
      case Initializer::one:
        return constant_fill(values, n, 1.0f, stream);
      case Initializer::zero:
        return constant_fill(values, n, 0.0f, stream);
    }
  }

  void measure_gradients(const OptimizerOptions& options, Stream& stream) {
    const ProfileScope scope("gradient norm", stream, memory_traffic(gradients_->kept()));
    const Tensor<const float, 1> partials = norm_->partial_sums(*gradients_, stream);
    finish_global_norm(optimizer_.data, partials.data, partials.size(),
                       static_cast<float>(options.grad_clip), loss_.data, stream);
  }

  // Gradients are read, moments and master weights are read and written, bf16 or fp16 weights
  // written.
  Work update_bytes() const {
    const auto n = static_cast<double>(layout_.trainable_shard_size());
    const bool has_master = !std::is_same_v<T, float>;
    return {.bytes = n * (7 * sizeof(float) + (has_master ? sizeof(T) : 0))};
  }

  // Writes spec.size() zeros on rank 0.
  void set_zeros(const ParameterSpec& spec, float* values) const {
    if (first_rank()) std::fill_n(values, spec.size(), 0.0f);
  }

  // Calls use(local) with the values of this rank's part of the parameter, of which `values` has
  // all.
  template <class Use>
  static void with_local_values(const ParameterSpec& spec, const float* values, const Use& use) {
    const LocalParameter& part = spec.part;
    if (part.index.row_size == 0) return use(values + part.index(0));
    std::vector<float> local(static_cast<std::size_t>(part.size()));
    for (std::int64_t i = 0; i < part.size(); ++i) local[i] = values[part.index(i)];
    use(local.data());
  }

  void set_local_weight(const ParameterSpec& spec, const float* values, Stream& stream) {
    const OwnedPart part = layout_.own_values(spec);
    if (has_master(spec)) set(master(part), part, values, stream);
    if constexpr (std::is_same_v<T, float>) {
      if (!layout_.shards_weights()) set_whole(spec, values, stream);
    } else {
      std::vector<T> rounded(static_cast<std::size_t>(spec.part.size()));
      for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = from_float<T>(values[i]);
      if (layout_.shards_weights()) {
        set(weights_.owned(part), part, rounded.data(), stream);
      } else {
        set_whole(spec, rounded.data(), stream);
      }
    }
    weights_.forget();
  }

  // Copies the values of a part; `values` has those that this tensor rank holds of the parameter.
  template <class U>
  static void set(U* owned, const OwnedPart& part, const U* values, Stream& stream) {
    copy_to_device(owned, values + part.first, part.size, stream);
    stream.synchronize();
  }
  void set_whole(const ParameterSpec& spec, const T* values, Stream& stream) {
    copy_to_device(weights_.kept().data + layout_.whole_offset(spec), values, spec.part.size(),
                   stream);
    stream.synchronize();
  }

  const ParameterTable& table_;
  Ranks& ranks_;
  ShardLayout layout_;
  bool training_;
  std::optional<std::uint64_t> rounding_seed_;  // empty: round to nearest
  WeightBuckets<T> weights_;
  PartCollector collector_;
  Tensor<float, 1> master_;  // of trainable parameters; empty if the weights are fp32
  std::unique_ptr<GradientBuckets> gradients_;
  std::unique_ptr<GradientNorm> norm_;
  Tensor<float, 1> first_moment_, second_moment_;
  Tensor<OptimizerState, 1> optimizer_;
  Tensor<float, 1> loss_;
  std::unique_ptr<ShardedParameters<T>> source_;
};

}  // namespace llmc
