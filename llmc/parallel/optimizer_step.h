// The optimizer's arrays of a rank, and an update of its weights from its gradients (AdamW), bucket
// by bucket. Arrays that are offloaded pass through device memory in chunks; the arithmetic is that
// of one launch per parameter, because AdamW works element by element.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/parallel/gradient_buckets.h"
#include "llmc/parallel/gradient_norm.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/state_array.h"
#include "llmc/parallel/state_chunks.h"
#include "llmc/parallel/weight_buckets.h"

namespace llmc {

template <class T>
class OptimizerStep {
 public:
  // Reserves memory in the plan. All references must outlive the object.
  OptimizerStep(const ParameterTable& table, const ShardLayout& layout, const RunShape& shape,
                Context& context, WeightBuckets<T>& weights, StateChunks& chunks, MemoryPlan& plan)
      : table_(table), layout_(layout), weights_(weights), chunks_(chunks) {
    const OffloadPlaces& offload = shape.offload;
    const std::int64_t n = layout.trainable_shard_size();
    if constexpr (!std::is_same_v<T, float>) {
      master_.reserve("master weights", n, offload.optimizer, context, plan);
    }
    gradients_.emplace(layout, table.head(),
                       shape.uses_sequence_parallelism(context.ranks.mesh().tensor_ranks), context,
                       offload.gradients, plan);
    first_moment_.reserve("moments", n, offload.optimizer, context, plan);
    second_moment_.reserve("moments", n, offload.optimizer, context, plan);
    plan.reserve("staging", state_, 1);
    norm_.emplace(table, layout, context.ranks, plan);
  }
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  void enable_stochastic_rounding(std::uint64_t seed) { rounding_seed_ = seed; }
  bool rounds_stochastically() const { return rounding_seed_.has_value(); }
  StochasticRounding rounding_of(const ParameterSpec& spec, std::int64_t first) const {
    return {.seed = *rounding_seed_, .tensor = spec.id, .index = spec.part.index, .first = first};
  }

  GradientBuckets& gradients() { return *gradients_; }
  // Master weights; fp32 weights are their own.
  StateArray<float>& master() {
    if constexpr (std::is_same_v<T, float>) {
      return weights_.kept();
    } else {
      return master_;
    }
  }
  std::int64_t master_begin(const OwnedPart& part) const {
    return std::is_same_v<T, float> ? weights_.begin(part) : part.shard_offset;
  }
  StateArray<float>& first_moment() { return first_moment_; }
  StateArray<float>& second_moment() { return second_moment_; }
  const Tensor<OptimizerState, 1>& state() const { return state_; }

  // Unscales, clips and applies the gradients, unless they or the loss (1) are not finite.
  void apply(const OptimizerOptions& options, double learning_rate, const Tensor<float, 1>& loss,
             Stream& stream) {
    measure_gradients(options, loss, stream);
    const ProfileScope scope("adamw", stream, update_bytes());
    begin_adamw(state_.data, options, stream);
    for (std::size_t block = 0; block < layout_.trainable_buckets().size(); ++block) {
      if (layout_.trainable_buckets()[block].is_held) update(block, options, learning_rate, stream);
    }
  }

 private:
  void measure_gradients(const OptimizerOptions& options, const Tensor<float, 1>& loss,
                         Stream& stream) {
    const ProfileScope scope("gradient norm", stream, memory_traffic(gradients_->kept().tensor()));
    const Tensor<const float, 1> partials = norm_->partial_sums(*gradients_, chunks_, stream);
    finish_global_norm(state_.data, partials.data, partials.size(),
                       static_cast<float>(options.grad_clip), loss.data, stream);
  }

  // Updates this rank's piece of the bucket of a block.
  void update(std::size_t block, const OptimizerOptions& options, double learning_rate,
              Stream& stream) {
    const Bucket& bucket = layout_.trainable_buckets()[block];
    using Use = StateOperand::Use;
    std::vector<StateOperand> operands = {
        {&gradients_->kept(), gradients_->begin(bucket), Use::read},
        {&first_moment_, bucket.shard_offset, Use::update},
        {&second_moment_, bucket.shard_offset, Use::update},
        {&weights_.kept(), weights_.begin(bucket),
         std::is_same_v<T, float> ? Use::update : Use::write}};
    if constexpr (!std::is_same_v<T, float>) {
      operands.push_back({&master_, bucket.shard_offset, Use::update});
    }
    chunks_.run(operands, bucket.piece, [&](const auto& data, std::int64_t first, auto n) {
      for (const ParameterSpec& spec : table_.specs()) {
        if (spec.block != static_cast<int>(block) || !spec.is_held || !spec.trainable) continue;
        const OwnedPart part = layout_.own_part(spec);
        const std::int64_t place = part.shard_offset - bucket.shard_offset;  // in the piece
        const std::int64_t begin = std::max(first, place),
                           end = std::min(first + n, place + part.size);
        if (begin >= end) continue;
        update(spec, part.first + begin - place, end - begin, data, begin - first, options,
               learning_rate, stream);
      }
    });
  }

  // Updates n elements of a parameter, from `element` on, which are at `at` in the arrays `data`.
  void update(const ParameterSpec& spec, std::int64_t element, std::int64_t n,
              const StateChunks::Pointers& data, std::int64_t at, const OptimizerOptions& options,
              double learning_rate, Stream& stream) {
    const auto floats = [&](std::size_t i) { return static_cast<float*>(data[i]) + at; };
    const auto apply = [&](float* master, T* weights, const auto& rounding) {
      adamw<T>(master, weights, floats(1), floats(2), static_cast<const float*>(floats(0)), n,
               options, learning_rate, spec.weight_decay, state_.data, stream, rounding);
    };
    if constexpr (std::is_same_v<T, float>) {
      apply(floats(3), nullptr, NearestRounding{});
    } else {
      T* const weights = static_cast<T*>(data[3]) + at;
      if (rounding_seed_) {
        apply(floats(4), weights, rounding_of(spec, element));
      } else {
        apply(floats(4), weights, NearestRounding{});
      }
    }
  }

  // Gradients are read, moments and master weights are read and written, bf16 or fp16 weights
  // written.
  Work update_bytes() const {
    const auto n = static_cast<double>(layout_.trainable_shard_size());
    const bool has_master = !std::is_same_v<T, float>;
    return {.bytes = n * (7 * sizeof(float) + (has_master ? sizeof(T) : 0))};
  }

  const ParameterTable& table_;
  const ShardLayout& layout_;
  WeightBuckets<T>& weights_;
  StateChunks& chunks_;
  std::optional<std::uint64_t> rounding_seed_;  // empty: round to nearest
  StateArray<float> master_;  // of trainable parameters; unused if the weights are fp32
  std::optional<GradientBuckets> gradients_;
  StateArray<float> first_moment_, second_moment_;
  Tensor<OptimizerState, 1> state_;
  std::optional<GradientNorm> norm_;
};

}  // namespace llmc
