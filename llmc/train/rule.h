// Actions between steps, and when they are due.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "llmc/train/watch/eta.h"

namespace llmc {

// An action that is due after every n-th step, for any of these n (0: never).
struct Rule {
  // Whether it is due after the last step: always, if any n is not 0, or never.
  enum class OnLastStep { always, if_enabled, never };

  WorkKind work;
  std::vector<std::int64_t> intervals;  // at most two
  OnLastStep on_last_step;
  std::function<void()> act;
  // Whether it is due now for another reason; null: there is none. All ranks call this together.
  std::function<bool()> also_due = {};

  bool due(std::int64_t step, std::int64_t last_step) const;

  // Number of steps after `step` at which it is due.
  std::int64_t times_due(std::int64_t step, std::int64_t last_step) const;
};

}  // namespace llmc
