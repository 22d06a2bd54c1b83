// Steps of a small model on this rank alone, timed by kind of operation.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/config/model_config.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/dtype.h"
#include "llmc/train/measure/step_parts.h"
#include "llmc/train/watch/step_profiler.h"

namespace llmc {

// Sizes of a model that is trained only to be measured.
struct MeasuredSizes {
  ModelConfig shape;
  std::int64_t B = 1;  // T is shape.context
};

// A run of B sequences of T tokens per step, whose first steps, which warm up, are not measured.
RunConfig measured_config(const ModelConfig& shape, std::int64_t B, std::int64_t T, Dtype dtype,
                          std::int64_t measured_steps);

// Runs it on this rank alone. Returns the profile of each measured step. All ranks call this
// together, and begin and end the steps together.
std::vector<std::vector<ProfileRow>> profiled_steps(const RunConfig& config, Exchange& exchange);

// The median step of a few, on random tokens, as the mean of all ranks. Each rank trains a model of
// its own; all ranks call this together.
ProfiledStep profile_step(const MeasuredSizes& sizes, Dtype dtype, Exchange& exchange);

}  // namespace llmc
