#include "llmc/device/device.h"
#include "llmc/models/load_adapter.h"
#include "llmc/models/load_weights.h"
#include "llmc/parallel/run_state.h"
#include "llmc/train/run/initial_state.h"

namespace llmc {

namespace {

// The model of --init-from, and its adapter.
void set_adapted_model(TrainingRunner& runner, RunConfig& config, bool resumed,
                       Exchange& exchange) {
  RunState& state = runner.state();
  Stream& stream = runner.stream();
  state.initialise(config.seed, stream, true);
  exchange.together([&] {
    BaseHash hash;
    load_weights(config.model.init_from, state, stream, &hash);
    config.adapter.base_hash = hash.text();
    if (config.finetune.adapter.empty() || resumed) return;
    load_adapter(config.finetune.adapter, config.adapter, config.shape, state, stream);
  });
}

}  // namespace

void set_initial_state(TrainingRunner& runner, RunConfig& config, bool resumed,
                       Exchange& exchange) {
  RunState& state = runner.state();
  Stream& stream = runner.stream();
  const bool has_model = !config.model.init_from.empty();
  if (has_model && config.adapter.shape.kind != AdapterKind::none) {
    set_adapted_model(runner, config, resumed, exchange);
  } else if (has_model && !resumed) {
    if (config.shape.labels > 0) state.initialise(config.seed, stream, true);
    exchange.together([&] { load_weights(config.model.init_from, state, stream); });
  } else {
    state.initialise(config.seed, stream);
  }
  if (!config.training()) return;
  const auto loss_scale = static_cast<float>(config.precision.loss_scale);
  state.set_optimizer_state(state.initial_optimizer_state(loss_scale), stream);
  if (config.precision.stochastic_rounding) state.enable_stochastic_rounding(config.seed);
}

}  // namespace llmc
