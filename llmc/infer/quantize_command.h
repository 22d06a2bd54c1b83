// `infer_gpt2 quantize IN OUT`: writes a model with INT8 weights. The weights in OUT are those that
// loading IN with the same --quant and --dtype has in memory.
#pragma once

#include "llmc/config/infer_settings.h"

namespace llmc {

// Writes the model command[1] with the INT8 weights of --quant into the new directory command[2],
// which appears when it is complete.
void quantize_model(const InferConfig& settings);

}  // namespace llmc
