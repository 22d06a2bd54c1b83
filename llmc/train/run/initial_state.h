// The state that a run starts with, before a checkpoint is loaded.
#pragma once

#include "llmc/config/train_settings.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

// Sets the weights, from --init-from or by the initializers of the table, and the optimizer state.
// `resumed`: a checkpoint replaces the weights, so those of --init-from are not read.
void set_initial_state(TrainingRunner& runner, const RunConfig& config, bool resumed);

}  // namespace llmc
