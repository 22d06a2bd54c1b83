// Rules and checks of the model's sizes.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/config/model_config.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_settings.h"

namespace llmc {

using TrainResolution = Resolution<TrainProgram>;

// Returns the size of the model that its weights or --model imply, if one of them is given.
std::optional<SettingValue> implied_size(const TrainResolution& r, std::int64_t ModelConfig::*size);

// The shape of the model. The settings of the model must be known.
ModelConfig model_shape(const RunConfig& config, const RunFacts& facts);

void check_model(const TrainResolution& r);

}  // namespace llmc
