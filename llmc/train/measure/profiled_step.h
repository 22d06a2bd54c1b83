// Steps of a small model on this rank alone, timed by kind of operation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/comm/exchange.h"
#include "llmc/config/model_config.h"
#include "llmc/device/dtype.h"
#include "llmc/plan/time/step_time.h"

namespace llmc {

// Sizes of a model that is trained only to be measured.
struct MeasuredSizes {
  ModelConfig shape;
  std::int64_t B = 1;  // T is shape.context
};

// Seconds of a step.
struct ProfiledStep {
  TimedModel model;
  Layout layout;
  ComputeTime compute;
  double update = 0;  // of gradients that are cleared, their norm, and the optimizer

  // Each part becomes the shorter of both.
  void keep_shorter(const ProfiledStep& other) {
    compute.products = std::min(compute.products, other.compute.products);
    compute.attention = std::min(compute.attention, other.compute.attention);
    compute.others = std::min(compute.others, other.compute.others);
    update = std::min(update, other.update);
  }
};

// The median step of a few, on random tokens, as the mean of all ranks. Each rank trains a model of
// its own; all ranks call this together.
ProfiledStep profile_step(const MeasuredSizes& sizes, Dtype dtype, Exchange& exchange);

}  // namespace llmc
