// The parameters of a GPT-2.
#pragma once

#include "llmc/config/model_config.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc {

// The rank at `place` holds `part` of each parameter, or nothing of it if that belongs to another
// pipeline rank. Throws if the ranks cannot split one.
ParameterTable gpt2_parameters(const ModelConfig& config, const MeshPlace& place = {},
                               const Pipeline& pipeline = {});

}  // namespace llmc
