// Actions between steps, and when they are due.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace llmc {

// An action that is due after every n-th step, for any of these n (0: never).
struct Rule {
  // When it is due after the last step: always, if any n is not 0, or never.
  enum class AtLast { always, if_enabled, never };

  std::vector<std::int64_t> every;
  AtLast at_last;
  std::function<void()> act;

  bool due(std::int64_t step, std::int64_t last) const {
    if (step == last && at_last != AtLast::if_enabled) return at_last == AtLast::always;
    return std::ranges::any_of(
        every, [&](std::int64_t n) { return n > 0 && (step % n == 0 || step == last); });
  }
};

}  // namespace llmc
