// Everything that training changes: the weights in use, the fp32 master weights, the gradients and
// the moments of AdamW. Each is one array laid out by the parameter table. Also contains the
// optimizer step over them.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/model/engine.h"
#include "llmc/model/memory_plan.h"
#include "llmc/model/parameter_source.h"
#include "llmc/model/parameters.h"
#include "llmc/model/weights.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

// Initial value of the dynamic loss scale of fp16, as in PyTorch's GradScaler.
inline constexpr float kInitialLossScale = 65536;

template <class T>
class TrainingState {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). If `training` is false, it reserves
  // only the weights and the loss.
  TrainingState(const ParameterTable& table, bool training, MemoryPlan& plan)
      : training_(training), weights_(table, plan) {
    const std::int64_t n = table.stored_size();
    plan.reserve("staging", loss_, 1);
    if (!training) return;
    if constexpr (!std::is_same_v<T, float>) plan.reserve("master weights", master_, n);
    plan.reserve("gradients", gradients_, n);
    plan.reserve("moments", first_moment_, n);
    plan.reserve("moments", second_moment_, n);
    plan.reserve("staging", optimizer_, 1);
    plan.reserve("staging", norm_partials_, squared_norm_count(n));
  }
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // Sets everything to zero, including gaps and padding, which stay zero. Only the loss scale of
  // fp16 starts at kInitialLossScale. Call after plan.allocate().
  void clear(Stream& stream) {
    weights_.clear(stream);
    fill_zero(loss_.data, 1, stream);
    if (!training_) return;
    if (master_.size() > 0) fill_zero(master_.data, master_.size(), stream);
    fill_zero(gradients_.data, gradients_.size(), stream);
    fill_zero(first_moment_.data, first_moment_.size(), stream);
    fill_zero(second_moment_.data, second_moment_.size(), stream);
    set_optimizer_state(initial_optimizer_state(kInitialLossScale), stream);
  }

  // The optimizer state of a new run. Only fp16 uses the loss scale.
  static OptimizerState initial_optimizer_state(float loss_scale) {
    OptimizerState state{};
    if constexpr (std::is_same_v<T, fp16>) state.loss_scale = loss_scale;
    return state;
  }

  // Sets the initial values of the table. A value depends only on the seed, its tensor and its
  // index.
  void initialise(std::uint64_t seed, Stream& stream) {
    for (const ParameterSpec& spec : table().specs()) initialise(spec, seed, stream);
  }

  // Enables stochastic rounding of master weights for all later updates
  // (ops/optimizer/stochastic_rounding.h). It has no effect in fp32. Initial and loaded weights are
  // rounded to nearest.
  void enable_stochastic_rounding(std::uint64_t seed) { rounding_seed_ = seed; }

  ParameterSource& source() { return source_; }
  const ParameterTable& table() const { return weights_.table(); }
  Tensor<float, 1> loss() const { return loss_; }  // (1) loss of the step: sum over micro-batches
  // The factor that scales the gradients, in device memory; the same for all micro-batches of a
  // step. Null if gradients are not scaled.
  const float* loss_scale() const {
    return std::is_same_v<T, fp16> && training_ ? &optimizer_.data->loss_scale : nullptr;
  }

  // ---- a step ----

  void begin_step(Stream& stream) {
    const ProfileScope scope("zero gradients", stream, memory_traffic(gradients_));
    fill_zero(gradients_.data, gradients_.size(), stream);
    fill_zero(loss_.data, 1, stream);
  }

  // Unscales, clips and applies the gradients. If they or the loss are not finite, it only counts a
  // skipped update and adjusts the loss scale.
  void apply_gradients(const OptimizerOptions& options, double learning_rate, Stream& stream) {
    const ProfileScope scope("optimizer", stream);
    measure_gradients(options, stream);
    const ProfileScope update_scope("adamw", stream, update_bytes());
    begin_adamw(optimizer_.data, options, stream);
    for (const ParameterSpec& spec : table().specs()) update(spec, options, learning_rate, stream);
  }

  // Call after a checkpoint's weights and optimizer state are set. With stochastic rounding, it
  // rounds the master weights as the last update did, because rounding to nearest yields other
  // weights.
  void restore_rounding(Stream& stream) {
    if constexpr (!std::is_same_v<T, float>) {
      const std::int32_t updates = optimizer_state(stream).updates;
      if (!rounding_seed_ || updates == 0) return;
      for (const ParameterSpec& spec : table().specs()) {
        stochastic_convert(weights_.values_of(spec),
                           static_cast<const float*>(master() + spec.offset), spec.size(),
                           rounding_of(spec), updates, stream);
      }
    }
  }

  // ---- copies from and to host memory; each is finished on return ----

  // `values` has spec.size() fp32 numbers.
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) {
    if constexpr (!std::is_same_v<T, float>) {
      if (training_) {
        copy_to_device(master_.data + spec.offset, values, spec.size(), stream);
        convert(weights_.values_of(spec), static_cast<const float*>(master() + spec.offset),
                spec.size(), stream);
        stream.synchronize();
        return;
      }
    }
    weights_.set_weight(spec, values, stream);
  }
  // Reads the fp32 master weights.
  void get_weight(const ParameterSpec& spec, float* values, Stream& stream) {
    get(master(), spec, values, stream);
  }
  void get_gradient(const ParameterSpec& spec, float* values, Stream& stream) {
    get(gradients_.data, spec, values, stream);
  }
  void get_moments(const ParameterSpec& spec, float* first, float* second, Stream& stream) {
    get(first_moment_.data, spec, first, stream);
    get(second_moment_.data, spec, second, stream);
  }
  void set_moments(const ParameterSpec& spec, const float* first, const float* second,
                   Stream& stream) {
    copy_to_device(first_moment_.data + spec.offset, first, spec.size(), stream);
    copy_to_device(second_moment_.data + spec.offset, second, spec.size(), stream);
    stream.synchronize();
  }
  OptimizerState optimizer_state(Stream& stream) {
    OptimizerState state{};
    copy_to_host(&state, optimizer_.data, 1, stream);
    stream.synchronize();
    return state;
  }
  void set_optimizer_state(const OptimizerState& state, Stream& stream) {
    copy_to_device(optimizer_.data, &state, 1, stream);
    stream.synchronize();
  }
  float loss_value(Stream& stream) {
    float loss = 0;
    copy_to_host(&loss, loss_.data, 1, stream);
    stream.synchronize();
    return loss;
  }

 private:
  float* master() {
    if constexpr (std::is_same_v<T, float>) {
      return weights_.data();
    } else {
      return master_.data;
    }
  }

  StochasticRounding rounding_of(const ParameterSpec& spec) const {
    return {.seed = *rounding_seed_, .tensor = spec.id};
  }

  void update(const ParameterSpec& spec, const OptimizerOptions& options, double learning_rate,
              Stream& stream) {
    const auto apply = [&](T* weights, const auto& rounding) {
      const std::int64_t offset = spec.offset;
      adamw<T>(master() + offset, weights, first_moment_.data + offset,
               second_moment_.data + offset, gradients_.data + offset, spec.stored_size(), options,
               learning_rate, spec.weight_decay, optimizer_.data, stream, rounding);
    };
    if constexpr (std::is_same_v<T, float>) {
      apply(nullptr, NearestRounding{});  // fp32 weights are their own master weights
    } else if (rounding_seed_) {
      apply(weights_.values_of(spec), rounding_of(spec));
    } else {
      apply(weights_.values_of(spec), NearestRounding{});
    }
  }

  void initialise(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
    float* values = master() + spec.offset;
    switch (spec.initializer) {
      case Initializer::normal:
        for (const ElementBox& box : spec.local().boxes) {
          normal_fill(values, box, seed, spec.id, 0.0f, spec.stddev, stream);
        }
        break;
      case Initializer::one:
        constant_fill(values, spec.size(), 1.0f, stream);
        break;
      case Initializer::zero:
        constant_fill(values, spec.size(), 0.0f, stream);
        break;
    }
    if constexpr (!std::is_same_v<T, float>) {
      convert(weights_.values_of(spec), static_cast<const float*>(values), spec.size(), stream);
    }
  }

  void measure_gradients(const OptimizerOptions& options, Stream& stream) {
    const ProfileScope scope("gradient norm", stream, memory_traffic(gradients_));
    squared_norm_partials<float>(norm_partials_.data, gradients_.data, gradients_.size(), stream);
    finish_global_norm(optimizer_.data, norm_partials_.data, norm_partials_.size(),
                       static_cast<float>(options.grad_clip), loss_.data, stream);
  }

  // Gradients are read, moments and master weights are read and written, bf16 or fp16 weights
  // written.
  Work update_bytes() const {
    const auto n = static_cast<double>(gradients_.size());
    const bool has_master = !std::is_same_v<T, float>;
    return {.bytes = n * (7 * sizeof(float) + (has_master ? sizeof(T) : 0))};
  }

  static void get(const float* array, const ParameterSpec& spec, float* values, Stream& stream) {
    copy_to_host(values, array + spec.offset, spec.size(), stream);
    stream.synchronize();
  }

  bool training_;
  std::optional<std::uint64_t> rounding_seed_;  // empty: round to nearest
  Weights<T> weights_;
  Tensor<float, 1> master_;  // empty if the weights are fp32
  Tensor<float, 1> gradients_;
  Tensor<float, 1> first_moment_, second_moment_;
  Tensor<OptimizerState, 1> optimizer_;
  Tensor<float, 1> norm_partials_;
  Tensor<float, 1> loss_;
  ResidentParameters<T> source_{weights_.values(), &gradients_};
};

// The engine of a training run.
template <class T>
using TrainingEngine = Engine<T, TrainingState<T>>;

}  // namespace llmc
