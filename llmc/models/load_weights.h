// Loads the weights of a transformers directory, a directory with INT8 weights or an llm.c model
// file.
#pragma once

#include <filesystem>

#include "llmc/models/loadable_weights.h"

namespace llmc {

// With several ranks, all of them call this, and the first one reads. Throws if the tensors are not
// those of the weights' table, or if they are INT8 and the weights are floats.
void load_weights(const std::filesystem::path& path, LoadableWeights& weights, Stream& stream);

}  // namespace llmc
