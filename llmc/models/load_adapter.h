// Loads an adapter of PEFT or of a run.
#pragma once

#include <filesystem>

#include "llmc/config/model_config.h"
#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/models/loadable_weights.h"

namespace llmc {

// Sets the adapters in the weights' table, which is that of `model` with adapter.shape. Each rank
// reads for itself. Throws if the directory has another adapter and, on the first rank, if it
// belongs to another model than that of adapter.base_hash.
void load_adapter(const std::filesystem::path& directory, const AdapterConfig& adapter,
                  const ModelConfig& model, LoadableWeights& weights, Stream& stream);

}  // namespace llmc
