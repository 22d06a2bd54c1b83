// A training engine for tests, with the parameters and batches of a fixture.
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/parallel/training_engine.h"
#include "test/activations.h"
#include "test/oracle/compare.h"
#include "test/oracle/fixture.h"
#include "test/support.h"

namespace llmc_test {

using NamedFloats = std::map<std::string, std::vector<float>>;

inline llmc::ModelConfig engine_config(const llmc::oracle::Config& config) {
  return {.vocabulary = config.V,
          .context = config.T_max,
          .layers = config.L,
          .heads = config.NH,
          .channels = config.C,
          .inner = config.inner,
          .activation = engine_activation(config.activation),
          .norm_epsilon = config.norm_epsilon,
          .scale_attention = config.scale_attention,
          .scale_attention_by_layer = config.scale_attention_by_layer,
          .tied_head = config.tied_head};
}

// The optimizer options of a run that sets none.
inline llmc::OptimizerOptions default_optimizer() {
  return llmc::default_run_config().optimizer;
}

template <class T>
class ModelRig {
 public:
  ModelRig(const llmc::ModelConfig& config, const llmc::RunShape& run, llmc::Ranks ranks = {})
      : engine_(config, run, {}, std::move(ranks)) {
    engine_.allocate();
  }

  void set_parameters(const llmc::oracle::Tensors& parameters) {
    for (const llmc::ParameterSpec& spec : engine_.table().specs()) {
      const auto& values = parameters.at(spec.name);
      const std::vector<float> floats(values.begin(), values.end());
      state_.set_weight(spec, floats.data(), stream_);
    }
  }

  // Sets the loss scale of fp16; other dtypes have none.
  void set_loss_scale(double scale) {
    state_.set_optimizer_state(state_.initial_optimizer_state(static_cast<float>(scale)), stream_);
  }

  static llmc::PreparedBatch prepared(const llmc::oracle::Batch& batch) {
    return llmc::prepare({batch.B, batch.T, to_int32(batch.tokens), to_int32(batch.targets),
                          to_int32(batch.doc_start)});
  }
  llmc::DeviceBatch put(const llmc::oracle::Batch& batch) { return runner().put(prepared(batch)); }

  // Accumulates the gradients of the mean loss over all batches; returns that loss. Sequences are
  // numbered from options.first_sample.
  float gradients_of(const std::vector<llmc::oracle::Batch>& batches,
                     llmc::PassOptions options = {}) {
    state_.begin_step(stream_);
    std::int64_t tokens = 0;
    for (const auto& batch : batches) tokens += batch.B * batch.T;
    const float scale = 1.0f / static_cast<float>(tokens);
    for (const auto& batch : batches) {
      runner().forward_backward(
          put(batch), {.scale = scale, .sum = state_.loss(), .factor = state_.loss_scale()},
          options);
      options.first_sample += batch.B;
    }
    return state_.loss_value(stream_);
  }

  // The logits of one batch: (B*T, V), unpadded.
  std::vector<double> logits(const llmc::oracle::Batch& batch) {
    const llmc::DeviceBatch staged = put(batch);
    runner().forward(staged);
    std::vector<double> all;
    std::vector<float> logits;
    for (std::int64_t row = 0; row < staged.rows(); ++row) {
      runner().read_logits(row, logits);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  std::vector<float> losses(const llmc::oracle::Batch& batch) {
    const llmc::DeviceBatch staged = put(batch);
    std::vector<float> losses;
    runner().forward(staged);
    runner().read_losses(staged, losses);
    return losses;
  }

  // Gradients as the optimizer uses them, unscaled.
  NamedFloats gradients() {
    NamedFloats all;
    const float loss_scale = state_.optimizer_state(stream_).loss_scale;
    for (const llmc::ParameterSpec& spec : engine_.table().specs()) {
      auto& values = all[spec.name];
      values.resize(static_cast<std::size_t>(spec.size()));
      state_.get_gradient(spec, values.data(), stream_);
      if (loss_scale == 0) continue;
      for (float& x : values) x /= loss_scale;
    }
    return all;
  }

  NamedFloats weights() {
    NamedFloats all;
    for (const llmc::ParameterSpec& spec : engine_.table().specs()) {
      auto& values = all[spec.name];
      values.resize(static_cast<std::size_t>(spec.size()));
      state_.get_weight(spec, values.data(), stream_);
    }
    return all;
  }

  llmc::TrainingState<T>& state() { return state_; }
  llmc::Stream& stream() { return stream_; }
  llmc::ModelRunner<T>& runner() { return engine_.runner(); }
  llmc::TrainingEngine<T>& engine() { return engine_; }

 private:
  static std::vector<std::int32_t> to_int32(const llmc::oracle::Ints& ids) {
    return {ids.begin(), ids.end()};
  }

  llmc::TrainingEngine<T> engine_;
  llmc::TrainingState<T>& state_ = engine_.state();
  llmc::Stream& stream_ = engine_.stream();
};

// Cuts the batch of a fixture into `pieces` batches along B.
inline std::vector<llmc::oracle::Batch> pieces_of(const llmc::oracle::Batch& batch,
                                                  std::int64_t pieces) {
  std::vector<llmc::oracle::Batch> all;
  const std::int64_t B = batch.B / pieces, rows = B * batch.T;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const auto cut = [&](const llmc::oracle::Ints& ids) {
      return llmc::oracle::Ints(ids.begin() + i * rows, ids.begin() + (i + 1) * rows);
    };
    all.push_back({B, batch.T, cut(batch.tokens), cut(batch.targets), {}});
  }
  return all;
}

// The batches of an optimizer step on a fixture, which test/oracle/compare.h cuts into `pieces`.
// Under sanitizers passes are slow, so there it is one batch of one sequence.
inline std::vector<llmc::oracle::Batch> batches_of_step(const llmc::oracle::Fixture& fixture,
                                                        std::int64_t step, std::int64_t pieces) {
  std::vector<llmc::oracle::Batch> batches = llmc::oracle::training_batches(fixture, step, pieces);
  if (tiny_shapes()) batches = {pieces_of(batches[0], batches[0].B)[0]};
  return batches;
}

// The largest relative L2 difference between tensors of the same name. The key part of a QKV bias
// is skipped, because its true gradient is zero.
inline double worst_difference(const NamedFloats& a, const NamedFloats& b) {
  double worst = 0;
  for (const auto& [name, values] : a) {
    auto one = values, other = b.at(name);
    if (name.ends_with("c_attn.bias")) {
      const auto third = static_cast<std::ptrdiff_t>(one.size()) / 3;
      one.erase(one.begin() + third, one.begin() + 2 * third);
      other.erase(other.begin() + third, other.begin() + 2 * third);
    }
    worst = std::max(worst, relative_l2(one, other));
  }
  return worst;
}

}  // namespace llmc_test
