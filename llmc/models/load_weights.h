// Loads the weights of a transformers directory, a directory with INT8 weights or an llm.c model
// file.
#pragma once

#include <filesystem>

#include "llmc/models/base_hash.h"
#include "llmc/models/loadable_weights.h"

namespace llmc {

// Each rank reads what it keeps. Adapters in the weights' table are left as they are. `hash`,
// unless null, gets the values of float weights on the first rank, which then reads all of them.
// Throws if the tensors are not those of the table, or if they are INT8 and the weights are floats.
void load_weights(const std::filesystem::path& path, LoadableWeights& weights, Stream& stream,
                  BaseHash* hash = nullptr);

}  // namespace llmc
