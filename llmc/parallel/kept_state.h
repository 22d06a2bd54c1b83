// The state that one rank keeps of a run between steps, in one dtype, and its copies from and to
// host memory. Of the part of the model that its tensor rank has, a rank keeps what the shard
// layout gives it (parallel/shard_layout.h); one rank keeps everything. Frozen parameters have only
// weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/models/round_weight.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/convert.h"
#include "llmc/parallel/base_codes.h"
#include "llmc/parallel/initial_values.h"
#include "llmc/parallel/optimizer_step.h"
#include "llmc/parallel/part_collector.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/state_chunks.h"
#include "llmc/parallel/weight_buckets.h"

namespace llmc {

template <class T>
class KeptState {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). Without shape.training, it reserves
  // only the weights and the loss. `table` and `context` must outlive the object.
  KeptState(const ParameterTable& table, const RunShape& shape, Context& context, MemoryPlan& plan)
      : table_(table),
        ranks_(context.ranks),
        layout_(table, shape.zero_stage, ranks_.mesh().shard_ranks,
                ranks_.mesh().shard_rank(ranks_.rank())),
        training_(shape.training),
        chunks_(context),
        weights_(layout_, context, shape.offload.parameters, plan),
        codes_(table, context, plan),
        collector_(layout_, ranks_, shape.offload.chunk, plan) {
    plan.reserve("staging", loss_, 1);
    std::vector<const StateBytes*> arrays = {&weights_.kept()};
    if (training_) {
      optimizer_ = std::make_unique<OptimizerStep<T>>(table, layout_, shape, context, weights_,
                                                      chunks_, plan);
      const auto others = optimizer_->arrays_of_update();
      arrays.insert(arrays.end(), others.begin(), others.end());
    }
    chunks_.reserve(std::min(shape.offload.chunk, layout_.shard_size()), arrays, plan);
  }
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;

  const ShardLayout& layout() const { return layout_; }
  bool training() const { return training_; }
  WeightBuckets<T>& weights() { return weights_; }
  BaseCodes& codes() { return codes_; }
  // Only of a state that is trained.
  OptimizerStep<T>& optimizer() { return *optimizer_; }
  const OptimizerStep<T>& optimizer() const { return *optimizer_; }
  GradientBuckets& gradients() { return optimizer_->gradients(); }
  // (1) of a step.
  Tensor<float, 1> loss() const { return loss_; }

  // Sets weights, codes, loss, master weights and moments to zero, including gaps and padding.
  void clear(Stream& stream) {
    clear(weights_.kept(), stream);
    codes_.clear(stream);
    fill_zero(loss_.data, 1, stream);
    if (!training_) return;
    if (!std::is_same_v<T, float>) clear(optimizer_->master(), stream);
    clear(optimizer_->first_moment(), stream);
    clear(optimizer_->second_moment(), stream);
  }

  // Sets the initial values of a parameter.
  void initialise(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
    if (spec.is_code) return initialise_codes(spec, seed, stream);
    const OwnedPart part = layout_.own_values(spec);
    std::vector<StateOperand> operands = {weights_operand(part, Use::write)};
    const bool has_own_master = has_master(spec) && !std::is_same_v<T, float>;
    if (has_own_master) operands.push_back(master_operand(part, Use::write));
    chunks_.run(operands, part.size, [&](const auto& data, std::int64_t first, std::int64_t n) {
      T* const weights = static_cast<T*>(data[0]);
      if constexpr (std::is_same_v<T, float>) {
        fill_initial(weights, n, part.first + first, spec, seed, stream);
      } else if (has_own_master) {
        float* const values = static_cast<float*>(data[1]);
        fill_initial(values, n, part.first + first, spec, seed, stream);
        convert(weights, static_cast<const float*>(values), n, stream);
      } else {
        fill_initial_rounded(weights, n, part.first + first, spec, seed, stream);
      }
    });
  }

  // Rounds the master weights as the update with this number did.
  void round_masters(std::int32_t updates, Stream& stream) {
    for (const ParameterSpec& spec : table_.specs()) {
      if (!spec.is_held || !spec.trainable) continue;
      const OwnedPart part = layout_.own_part(spec);
      chunks_.run({{weights_operand(part, Use::write), master_operand(part, Use::read)}}, part.size,
                  [&](const auto& data, std::int64_t first, std::int64_t n) {
                    stochastic_convert(static_cast<T*>(data[0]), static_cast<const float*>(data[1]),
                                       n, optimizer_->rounding_of(spec, part.first + first),
                                       updates, stream);
                  });
    }
  }

  // ---- copies from and to host memory, as in RunState; each is finished on return ----

  void require_representable(const ParameterSpec& spec, std::span<const float> values) const {
    llmc::require_representable<T>(spec, values);
  }
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) {
    require_representable(spec, {values, static_cast<std::size_t>(spec.size())});
    const ElementRange kept = kept_weights(spec);
    set_kept_weights(spec, part_of(spec, kept, values).data(), stream);
  }
  ElementRange kept_weights(const ParameterSpec& spec) const {
    if (!spec.is_held) return {};
    if (spec.is_code || !layout_.shards_weights()) return {0, spec.part.size()};
    return kept_moments(spec);
  }
  void set_kept_weights(const ParameterSpec& spec, const float* values, Stream& stream) {
    const ElementRange kept = kept_weights(spec);
    if (kept.count == 0) return;
    llmc::require_representable<T>(spec, {values, static_cast<std::size_t>(kept.count)},
                                   [&](std::int64_t i) { return spec.part.index(kept.first + i); });
    if (spec.is_code) return codes_.set(spec, values, stream);
    if constexpr (std::is_same_v<T, float>) {
      set_weights_in_use(spec, kept, values, stream);
    } else {
      if (has_master(spec)) {
        const OwnedPart own = layout_.own_values(spec);
        const float* const master = values + (own.size > 0 ? own.first - kept.first : 0);
        set(optimizer_->master(), own.shard_offset, master, own.size, stream);
      }
      std::vector<T> rounded(static_cast<std::size_t>(kept.count));
      for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = from_float<T>(values[i]);
      set_weights_in_use(spec, kept, rounded.data(), stream);
    }
    weights_.forget();
  }
  void set_moments(const ParameterSpec& spec, const float* first, const float* second,
                   Stream& stream) {
    if (!spec.is_held || !spec.trainable) return;
    const ElementRange kept = kept_moments(spec);
    const auto own = [&](const float* values) {
      return values == nullptr ? std::vector<float>() : part_of(spec, kept, values);
    };
    set_kept_moments(spec, first == nullptr ? nullptr : own(first).data(),
                     second == nullptr ? nullptr : own(second).data(), stream);
  }
  ElementRange kept_moments(const ParameterSpec& spec) const {
    if (!spec.is_held) return {};
    const OwnedPart own = layout_.own_values(spec);
    return {own.first, own.size};
  }
  void set_kept_moments(const ParameterSpec& spec, const float* first, const float* second,
                        Stream& stream) {
    const OwnedPart own = layout_.own_values(spec);
    const auto set_moment = [&](StateArray<float>& moments, const float* values) {
      if (values != nullptr) set(moments, own.shard_offset, values, own.size, stream);
    };
    if (!spec.is_held || !spec.trainable) return;
    set_moment(optimizer_->first_moment(), first);
    set_moment(optimizer_->second_moment(), second);
  }

  bool keeps_whole_weight(const ParameterSpec& spec) const {
    const bool is_split = spec.part.split && ranks_.mesh().tensor_ranks > 1;
    const bool in_use = std::is_same_v<T, float> || !saves_master(spec);
    return !is_split && !(in_use ? layout_.shards_weights() : layout_.shards() > 1);
  }
  void collect_weight(const ParameterSpec& spec, int root, float* values, Stream& stream) {
    if (spec.is_code) {
      if (ranks_.rank() == root) codes_.get(spec, values, stream);
    } else if (keeps_whole_weight(spec) && ranks_.mesh().pipeline_rank(root) == spec.first_holder) {
      if (ranks_.rank() == root) copy_whole_weight(spec, values, stream);
    } else if (saves_master(spec)) {
      collect<float>(spec, root, values, stream,
                     [&](const OwnedPart& part) { return master_operand(part, Use::read); });
    } else {
      collect<T>(spec, root, values, stream,
                 [&](const OwnedPart& part) { return weights_operand(part, Use::read); });
    }
  }
  void get_gradient(const ParameterSpec& spec, float* values, Stream& stream) {
    if (!spec.trainable) return set_zeros(spec, values);
    collect<float>(spec, 0, values, stream, [&](const OwnedPart& part) {
      return StateOperand{&gradients().kept(), gradients().begin(part), Use::read};
    });
  }
  void get_moments(const ParameterSpec& spec, float* first, float* second, Stream& stream) {
    if (!spec.trainable) {
      set_zeros(spec, first);
      return set_zeros(spec, second);
    }
    const auto get_moment = [&](StateArray<float>& moments, float* values) {
      if (values == nullptr) return;
      collect<float>(spec, 0, values, stream, [&](const OwnedPart& part) {
        return StateOperand{&moments, part.shard_offset, Use::read};
      });
    };
    get_moment(optimizer_->first_moment(), first);
    get_moment(optimizer_->second_moment(), second);
  }
  bool keeps_moments_on_disk() const {
    return optimizer_ && optimizer_->first_moment().is_on_disk();
  }
  void get_kept_moments(const ParameterSpec& spec, float* first, float* second, Stream& stream) {
    if (!spec.is_held || !spec.trainable) return;
    const OwnedPart own = layout_.own_values(spec);
    const auto get_moment = [&](StateArray<float>& moments, float* values) {
      if (values == nullptr) return;
      copy_values({&moments, own.shard_offset, Use::read}, own.size, values, stream);
    };
    get_moment(optimizer_->first_moment(), first);
    get_moment(optimizer_->second_moment(), second);
  }
  void visit_kept(const RunState::VisitKept& visit_values) {
    const auto visit = [&](const char* kind, const ParameterSpec& spec, const StateOperand& operand,
                           std::int64_t count, bool whole) {
      const std::int64_t bytes = operand.array->element_bytes();
      const auto read = [&](const auto& use) {
        chunks_.run({{operand}}, count, [&](const auto& data, auto, std::int64_t n) {
          use(std::span(static_cast<const std::byte*>(data[0]),
                        static_cast<std::size_t>(n * bytes)));
        });
      };
      visit_values(kind, spec, read, whole);
    };
    for (const ParameterSpec& spec : table_.specs()) {
      if (spec.is_code) continue;
      const OwnedPart part = spec.is_held ? layout_.own_values(spec) : OwnedPart();
      if (layout_.shards_weights()) {
        visit("weights", spec, weights_operand(part, Use::read), part.size, false);
      } else {
        const std::int64_t begin = spec.is_held ? layout_.whole_offset(spec) : 0;
        visit("weights", spec, {&weights_.kept(), begin, Use::read},
              spec.is_held ? spec.part.size() : 0, true);
      }
      if (!spec.trainable) continue;
      const bool whole = layout_.shards() == 1;
      if constexpr (!std::is_same_v<T, float>) {
        visit("master weights", spec, master_operand(part, Use::read), part.size, whole);
      }
      const std::int64_t begin = part.shard_offset;
      visit("first moments", spec, {&optimizer_->first_moment(), begin, Use::read}, part.size,
            whole);
      visit("second moments", spec, {&optimizer_->second_moment(), begin, Use::read}, part.size,
            whole);
    }
  }

 private:
  using Use = StateOperand::Use;

  // Whether a parameter has master weights. fp32 weights are their own.
  bool has_master(const ParameterSpec& spec) const {
    return std::is_same_v<T, float> || (training_ && spec.trainable);
  }
  // Those of a part that this rank owns.
  StateOperand master_operand(const OwnedPart& part, Use use) {
    if constexpr (std::is_same_v<T, float>) {
      return weights_operand(part, use);
    } else {
      return {&optimizer_->master(), part.shard_offset, use};
    }
  }
  StateOperand weights_operand(const OwnedPart& part, Use use) {
    return {&weights_.kept(), weights_.begin(part), use};
  }

  // A store begins with zeros.
  template <class U>
  static void clear(StateArray<U>& array, Stream& stream) {
    if (array.is_resident()) fill_zero(array.data(), array.size(), stream);
  }

  // Whether the weights of files are the master weights, not those in use.
  bool saves_master(const ParameterSpec& spec) const {
    return spec.trainable && (training_ || std::is_same_v<T, float>);
  }
  // Writes all of a parameter's elements, which this rank keeps.
  void copy_whole_weight(const ParameterSpec& spec, float* values, Stream& stream) {
    const std::int64_t n = spec.size();
    if constexpr (std::is_same_v<T, float>) {
      copy_values({&weights_.kept(), layout_.whole_offset(spec), Use::read}, n, values, stream);
    } else if (saves_master(spec)) {
      const OwnedPart own = layout_.own_values(spec);
      copy_values(master_operand(own, Use::read), n, values, stream);
    } else {
      const StateOperand in_use = {&weights_.kept(), layout_.whole_offset(spec), Use::read};
      std::vector<T> rounded(static_cast<std::size_t>(n));
      copy_values(in_use, n, rounded.data(), stream);
      std::ranges::transform(rounded, values, [](T x) { return to_float(x); });
    }
  }
  // Copies n elements of an array to host memory.
  template <class U>
  void copy_values(const StateOperand& operand, std::int64_t n, U* values, Stream& stream) {
    chunks_.run({{operand}}, n, [&](const auto& data, std::int64_t first, std::int64_t count) {
      copy_to_host(values + first, static_cast<const U*>(data[0]), count, stream);
      ranks_.synchronize(stream);
    });
  }

  // Writes spec.size() numbers on rank `root`. operand(part): this rank's part, of dtype U.
  template <class U, class Operand>
  void collect(const ParameterSpec& spec, int root, float* values, Stream& stream,
               const Operand& operand) {
    collector_.collect<U>(spec, root, values, stream, [&](const OwnedPart& part, const auto& use) {
      chunks_.run({{operand(part)}}, part.size, [&](const auto& data, std::int64_t first, auto n) {
        use(static_cast<const U*>(data[0]), first, n);
      });
    });
  }

  void initialise_codes(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
    const Buffer<float> values(spec.size());
    fill_initial(values.data(), spec.size(), 0, spec, seed, stream);
    std::vector<float> on_host(static_cast<std::size_t>(spec.size()));
    copy_to_host(on_host.data(), static_cast<const float*>(values.data()), spec.size(), stream);
    stream.synchronize();
    codes_.set(spec, on_host.data(), stream);
  }
  // Writes spec.size() zeros on rank 0.
  void set_zeros(const ParameterSpec& spec, float* values) const {
    if (ranks_.rank() == 0 && values != nullptr) std::fill_n(values, spec.size(), 0.0f);
  }

  // Elements of this rank's part of the parameter, of which `values` has all.
  static std::vector<float> part_of(const ParameterSpec& spec, const ElementRange& range,
                                    const float* values) {
    std::vector<float> part(static_cast<std::size_t>(range.count));
    for (std::int64_t i = 0; i < range.count; ++i) {
      part[i] = values[spec.part.index(range.first + i)];
    }
    return part;
  }

  void set_weights_in_use(const ParameterSpec& spec, const ElementRange& kept, const T* values,
                          Stream& stream) {
    const std::int64_t begin = layout_.shards_weights() ? layout_.own_values(spec).shard_offset
                                                        : layout_.whole_offset(spec);
    set(weights_.kept(), begin, values, kept.count, stream);
  }

  // Copies n values to elements of an array, from `begin` on.
  template <class U>
  void set(StateArray<U>& array, std::int64_t begin, const U* values, std::int64_t n,
           Stream& stream) {
    chunks_.run({{{&array, begin, Use::write}}}, n,
                [&](const auto& data, std::int64_t first, std::int64_t count) {
                  copy_to_device(static_cast<U*>(data[0]), values + first, count, stream);
                });
    stream.synchronize();
  }

  const ParameterTable& table_;
  Ranks& ranks_;
  ShardLayout layout_;
  bool training_;
  StateChunks chunks_;
  WeightBuckets<T> weights_;
  BaseCodes codes_;
  PartCollector collector_;
  Tensor<float, 1> loss_;
  std::unique_ptr<OptimizerStep<T>> optimizer_;  // null: the state is not trained
};

}  // namespace llmc
