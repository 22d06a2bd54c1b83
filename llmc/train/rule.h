// Actions between steps, and when they are due.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace llmc {

// An action that is due after every n-th step, for any of these n (0: never).
struct Rule {
  // Whether it is due after the last step: always, if any n is not 0, or never.
  enum class OnLastStep { always, if_enabled, never };

  std::vector<std::int64_t> intervals;
  OnLastStep on_last_step;
  std::function<void()> act;

  bool due(std::int64_t step, std::int64_t last_step) const {
    if (step == last_step && on_last_step != OnLastStep::if_enabled)
      return on_last_step == OnLastStep::always;
    return std::ranges::any_of(
        intervals, [&](std::int64_t n) { return n > 0 && (step % n == 0 || step == last_step); });
  }
};

}  // namespace llmc
