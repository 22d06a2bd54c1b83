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

// Sets config.frozen, and config.pipeline accordingly, from the patterns of the run. Call it when
// the shape of the model and the pipeline are known. Throws a usage error if a pattern matches no
// parameter, or if nothing is left to learn.
void choose_trainable(RunConfig& config);

// "training 1536 of 124439808 parameters (0.00123%), in 2 of 148 tensors"; empty if all learn.
std::string trainable_text(const RunConfig& config);

}  // namespace llmc
