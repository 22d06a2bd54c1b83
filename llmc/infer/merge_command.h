// `infer_gpt2 merge BASE ADAPTER OUT`: writes the model that --adapter has in memory.
#pragma once

#include "llmc/config/infer_settings.h"

namespace llmc {

// Writes the model command[1] with the adapter command[2] merged, in fp32, into the new directory
// command[3], which appears when it is complete.
void merge_model(const InferConfig& settings);

}  // namespace llmc
