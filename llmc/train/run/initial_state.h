// The state that a run starts with, before a checkpoint is loaded.
#pragma once

#include "llmc/config/train_settings.h"
#include "llmc/model/load_weights.h"
#include "llmc/train/training_runner.h"

namespace llmc {

// Sets the weights, from --init-from or by the initializers of the table, and the optimizer state.
// `resumed`: a checkpoint replaces the weights, so those of --init-from are not read.
inline void set_initial_state(TrainingRunner& runner, const RunConfig& config, bool resumed) {
  RunState& state = runner.state();
  Stream& stream = runner.stream();
  if (!config.model.init_from.empty() && !resumed) {
    load_weights(config.model.init_from, state, stream);
  } else {
    state.initialise(config.seed, stream);
  }
  if (!config.training()) return;
  const auto loss_scale = static_cast<float>(config.precision.loss_scale);
  state.set_optimizer_state(state.initial_optimizer_state(loss_scale), stream);
  if (config.precision.stochastic_rounding) state.enable_stochastic_rounding(config.seed);
}

}  // namespace llmc
