// Steps of a small model on this rank alone, timed by kind of operation.
#pragma once

#include <cstdint>

#include "llmc/comm/exchange.h"
#include "llmc/config/model_config.h"
#include "llmc/device/dtype.h"
#include "llmc/train/measure/step_parts.h"

namespace llmc {

// Sizes of a model that is trained only to be measured.
struct MeasuredSizes {
  ModelConfig shape;
  std::int64_t B = 1;  // T is shape.context
};

// The median step of a few, on random tokens, as the mean of all ranks. Each rank trains a model of
// its own; all ranks call this together.
ProfiledStep profile_step(const MeasuredSizes& sizes, Dtype dtype, Exchange& exchange);

}  // namespace llmc
