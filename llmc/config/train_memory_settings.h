// The settings of train_gpt2: what saves memory at the cost of time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct MemorySettings {
  Value<Recompute> recompute;
  Value<std::int64_t> recompute_blocks;     // of each stage; 0: all
  Value<std::vector<std::string>> offload;  // entries of parse_offload()
  Value<OptimizerOn> optimizer_on;
};

// The rows; their texts and rules are in train_memory_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> memory_rows();

}  // namespace llmc
