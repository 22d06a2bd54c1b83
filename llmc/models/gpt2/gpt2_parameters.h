// The parameters of a GPT-2.
#pragma once

#include <string>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc {

// The rank at `place` holds `part` of each parameter, or nothing of it if that belongs to another
// pipeline rank. `frozen`: names of parameters that are not trainable. Throws if the ranks cannot
// split a parameter, if a frozen one does not exist, and if all are frozen.
ParameterTable gpt2_parameters(const ModelConfig& config, const MeshPlace& place = {},
                               const Pipeline& pipeline = {},
                               const std::vector<std::string>& frozen = {});

}  // namespace llmc
