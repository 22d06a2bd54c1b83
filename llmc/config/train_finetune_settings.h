// The settings of train_gpt2: which parameters of a model learn.
#pragma once

#include <string>
#include <vector>

#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct FinetuneSettings {
  // Patterns of the shell for whole names of parameters; at most one list is not empty.
  Value<std::vector<std::string>> train_only, freeze;
};

// The rows; their texts and rules are in train_finetune_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> finetune_rows();

}  // namespace llmc
