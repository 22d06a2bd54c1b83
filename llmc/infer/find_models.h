// The directories that --model, --adapter and --base name.
#pragma once

#include <string>

#include "llmc/config/infer_settings.h"
#include "llmc/io/checkpoint/adapter_config.h"

namespace llmc {

// Replaces the paths by those of the weights: the newest checkpoints of runs, and for an adapter
// without --model the base model that it names. Then resolves --quant. Throws unless --adapter fits
// the model.
void find_models(const InferRequest& request, InferConfig& settings);

// Reads the config of an adapter and prints what is merged. Both arguments are paths of weights.
// Throws unless the adapter fits the base model.
AdapterConfig check_adapter(const std::string& adapter, const std::string& base);

}  // namespace llmc
