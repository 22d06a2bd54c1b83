#include "llmc/device/device.h"
#include "llmc/models/load_weights.h"
#include "llmc/parallel/run_state.h"
#include "llmc/train/run/initial_state.h"

namespace llmc {

void set_initial_state(TrainingRunner& runner, const RunConfig& config, bool resumed) {
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
