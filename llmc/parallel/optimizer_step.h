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
#include "llmc/device/workers.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/adamw_on_cpu.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/parallel/cpu_update.h"
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
    gradients_.emplace(table, layout,
                       shape.uses_sequence_parallelism(context.ranks.mesh().tensor_ranks), context,
                       offload, plan);
    first_moment_.reserve("moments", n, offload.optimizer, context, plan);
    second_moment_.reserve("moments", n, offload.optimizer, context, plan);
    plan.reserve("staging", state_, 1);
    norm_.emplace(table, layout, context.ranks, plan);
    if (!offload.optimizer_on_cpu) return;
    require(offload.optimizer.place == Place::host,
            "the CPU updates optimizer state only in host memory");
    on_cpu_.emplace(std::min(offload.chunk, n), weights.kept(), chunks, context, plan);
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
  // The arrays that pass through device memory at the same time as the weights: all that the device
  // updates; otherwise the masters, or one of them alone.
  std::vector<const StateBytes*> arrays_of_update() {
    constexpr bool kHasMaster = !std::is_same_v<T, float>;
    if (on_cpu_) return {kHasMaster ? &master_ : &first_moment_};
    std::vector<const StateBytes*> arrays = {&gradients_->kept(), &first_moment_, &second_moment_};
    if (kHasMaster) arrays.push_back(&master_);
    return arrays;
  }
  const Tensor<OptimizerState, 1>& state() const { return state_; }

  // See GradientBuckets.
  void begin_step(std::int64_t micro_batches, Stream& stream) {
    gradients_->begin_step(micro_batches, norm_->own_sums(), stream);
  }

  // Computes the gradient norm, and whether it and the loss (1) are finite; see global_norm.h.
  void measure_gradients(const OptimizerOptions& options, const Tensor<float, 1>& loss,
                         Stream& stream) {
    const ProfileScope scope("gradient norm", stream, memory_traffic(gradients_->kept().tensor()));
    const Tensor<const float, 1> partials = norm_->partial_sums(*gradients_, stream);
    finish_global_norm(state_.data, partials.data, partials.size(),
                       static_cast<float>(options.grad_clip), loss.data, stream);
  }

  // Unscales, clips and applies the gradients, unless they or the loss (1) are not finite. Blocks
  // are in the order of a forward pass.
  void apply(const OptimizerOptions& options, double learning_rate, const Tensor<float, 1>& loss,
             Stream& stream) {
    measure_gradients(options, loss, stream);
    const ProfileScope scope("adamw", stream, update_bytes());
    begin_adamw(state_.data, options, stream);
    OptimizerState state{};
    if (on_cpu_) {
      state = on_cpu_->read(state_.data, stream);
      if (state.finite == 0) return;
    }
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      const auto block = static_cast<int>(&bucket - layout_.trainable_buckets().data());
      if (on_cpu_) {
        update_on_cpu(block, options, learning_rate, state, stream);
      } else {
        update(block, options, learning_rate, stream);
      }
    }
  }

 private:
  const Bucket& bucket_of(int block) const {
    return layout_.trainable_buckets()[static_cast<std::size_t>(block)];
  }

  // Calls update(spec, element, n, at) for the parameters' parts of elements [first, first + n) of
  // this rank's piece of the bucket of a block: n elements from `element` of the rank's part on,
  // which are at `at` in the range.
  template <class Update>
  void for_each_part(int block, std::int64_t first, std::int64_t n, const Update& update) const {
    for (const ParameterSpec& spec : table_.specs()) {
      if (spec.block != block || !spec.is_held || !spec.trainable) continue;
      const OwnedPart part = layout_.own_part(spec);
      const std::int64_t place = part.shard_offset - bucket_of(block).shard_offset;  // in the piece
      const std::int64_t begin = std::max(first, place),
                         end = std::min(first + n, place + part.size);
      if (begin < end) update(spec, part.first + begin - place, end - begin, begin - first);
    }
  }

  // Updates this rank's piece of the bucket of a block.
  void update(int block, const OptimizerOptions& options, double learning_rate, Stream& stream) {
    const Bucket& bucket = bucket_of(block);
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
      for_each_part(block, first, n,
                    [&](const ParameterSpec& spec, auto element, auto size, auto at) {
                      update(spec, element, size, data, at, options, learning_rate, stream);
                    });
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

  // The same by the CPU.
  void update_on_cpu(int block, const OptimizerOptions& options, double learning_rate,
                     const OptimizerState& state, Stream& stream) {
    const Bucket& bucket = bucket_of(block);
    on_cpu_->run(weights_.begin(bucket), bucket.piece, stream, [&](const auto& range) {
      std::vector<AdamWPart<T>> parts;
      for_each_part(block, range.first, range.n,
                    [&](const ParameterSpec& spec, auto element, auto n, auto at) {
                      parts.push_back({host_arrays(bucket, range, at, n), spec.weight_decay});
                      if (rounding_seed_) parts.back().rounding = rounding_of(spec, element);
                    });
      adamw_on_cpu(parts, options, learning_rate, state, workers());
    });
  }

  // n elements, from `at` in a range of this rank's piece of a bucket on.
  AdamWArrays<T> host_arrays(const Bucket& bucket, const typename CpuUpdate<T>::Range& range,
                             std::int64_t at, std::int64_t n) const {
    const std::int64_t element = range.first + at;  // in the piece
    const auto floats = [&](const StateArray<float>& array) {
      return static_cast<float*>(array.on_host(bucket.shard_offset + element));
    };
    const float* const gradient = gradients_->on_host(bucket) + element;
    T* const weights = range.weights + at;
    if constexpr (std::is_same_v<T, float>) {
      return {weights, nullptr, floats(first_moment_), floats(second_moment_), gradient, n};
    } else {
      return {floats(master_), weights, floats(first_moment_), floats(second_moment_), gradient, n};
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
  std::optional<CpuUpdate<T>> on_cpu_;  // empty: the device updates the weights
};

}  // namespace llmc
