// The time of a step on one rank, by kind of operation.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "llmc/plan/time/step_time.h"

namespace llmc {

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

// A line of the table of --profile.
struct OperationTime {
  std::string path;  // "forward/gelu forward"
  double seconds = 0;
  bool has_flops = false;
};

// Adds the operations that have no others inside to the parts of the step.
void add_operations(ProfiledStep& step, const std::vector<OperationTime>& operations);

}  // namespace llmc
