// The directories that --model, --adapter and --base name.
#pragma once

#include <string>

#include "llmc/config/infer_settings.h"
#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/io/checkpoint/huggingface_config.h"

namespace llmc {

// Replaces the paths by those of the weights: the newest checkpoints of runs, and for an adapter
// without --model the base model that it names. Then resolves --quant. Throws unless --adapter fits
// the model, and the model the command: classify needs a classifier, all others a language model.
void find_models(const InferRequest& request, InferConfig& settings);

// Throws unless `config` is that of a language model. The error calls it `name`, such as
// "quantize DIR"; `flags` name it to the command classify, such as "--model DIR".
void require_language_model(const std::string& name, const std::string& flags,
                            const HuggingFaceConfig& config);

// Reads the config of an adapter and prints what is merged. Both arguments are paths of weights.
// Throws unless the adapter fits the base model.
AdapterConfig check_adapter(const std::string& adapter, const std::string& base);

}  // namespace llmc
