// The settings of train_gpt2: which parameters of a model learn, and adapters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/config/model_config.h"
#include "llmc/config/setting.h"
#include "llmc/io/checkpoint/adapter_config.h"

namespace llmc {

template <template <class> class Value>
struct FinetuneSettings {
  // Patterns of the shell for whole names of parameters; at most one list is not empty.
  Value<std::vector<std::string>> train_only, freeze;
  Value<std::int64_t> lora;  // the rank; 0: no LoRA
  Value<double> lora_alpha;
  Value<std::vector<std::string>> lora_targets;
  Value<double> lora_dropout;
  Value<bool> rslora;
  Value<bool> ia3;
  Value<Ia3Targets> ia3_targets;
  Value<std::string> adapter;  // a directory; empty: none
  Value<BaseQuant> base_quant;
};

// The adapter that --lora or --ia3 adds to a model of this shape; none without these flags.
AdapterConfig new_adapter(const FinetuneSettings<Resolved>& finetune, const ModelConfig& model);

// The rows; their texts and rules are in train_finetune_settings.cpp.
struct TrainProgram;
// For the row of --qat, which is below.
void refuse_qat_with_adapter(const Resolution<TrainProgram>& r);
Settings<TrainProgram> finetune_rows();

}  // namespace llmc
