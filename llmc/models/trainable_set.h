// The parameters that a run trains, of --train-only and --freeze.
#pragma once

#include <string>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/config/train_settings.h"

namespace llmc {

// `shape` with these frozen parameters. Its pipeline loses the backward passes of stages in which,
// and below which, nothing learns. Throws if a name does not exist, or if all are frozen.
RunShape with_frozen(RunShape shape, const ModelConfig& model, std::vector<std::string> frozen);

// Sets config.frozen from the patterns of the run, or config.adapter, and config.pipeline
// accordingly. Call it when the shape of the model and the pipeline are known. `adapter`: the
// directory of the adapter that the run trains; empty: a new one, if the flags ask for it. Throws a
// usage error if a pattern matches no parameter, if nothing is left to learn, or if the flags ask
// for another adapter than that of the directory.
void choose_trainable(RunConfig& config, const std::string& adapter);

// "training 1536 of 124439808 parameters (0.00123%), in 2 of 148 tensors"; empty if all learn.
std::string trainable_text(const RunConfig& config);

}  // namespace llmc
