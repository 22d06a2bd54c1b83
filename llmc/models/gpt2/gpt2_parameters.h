// The parameters of a GPT-2.
#pragma once

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

// The rank at `place` holds `part` of each parameter, or nothing of it if that belongs to another
// pipeline rank. Of `shape`, the pipeline and the frozen parameters matter. Throws if the ranks
// cannot split a parameter, if a frozen one does not exist, and if all are frozen.
ParameterTable gpt2_parameters(const ModelConfig& config, const MeshPlace& place = {},
                               const RunShape& shape = {});

}  // namespace llmc
