// The state that a run starts with, before a checkpoint is loaded.
#pragma once

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

// Sets the weights, from --init-from or by the initializers of the table, the adapter, and the
// optimizer state. `resumed`: a checkpoint replaces what learns, so only an adapter's model is
// read. On rank 0, sets the hash of that model in config.adapter.
// All ranks call this together, and throw the same error.
void set_initial_state(TrainingRunner& runner, RunConfig& config, bool resumed, Exchange& exchange);

}  // namespace llmc
