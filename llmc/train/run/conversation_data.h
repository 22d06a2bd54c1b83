// Conversations as the data of a run: --train, --val and --test.
#pragma once

#include "llmc/config/train_settings.h"
#include "llmc/train/run/run_data.h"

namespace llmc {

// Adds the samples to `data`, which has its tokenizer. Without `training` there are no samples to
// train on.
void load_conversation_data(RunData& data, const InputConfig& config, bool training);

}  // namespace llmc
