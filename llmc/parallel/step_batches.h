// The micro-batches of a training step.
#pragma once

#include <cstdint>
#include <functional>

#include "llmc/models/batch_stage.h"
#include "llmc/nn/pass_options.h"

namespace llmc {

// The micro-batches of a step and what their passes need.
struct StepBatches {
  std::int64_t count = 1;
  std::function<PreparedBatch()> next;  // the micro-batches 0 to count - 1, one per call
  std::function<PassOptions(std::int64_t micro_batch)> options;
  LossOptions loss;
};

}  // namespace llmc
