#include "llmc/train/rule.h"

#include <algorithm>
#include <numeric>

namespace llmc {

bool Rule::due(std::int64_t step, std::int64_t last_step) const {
  if (step == last_step && on_last_step != OnLastStep::if_enabled)
    return on_last_step == OnLastStep::always;
  return std::ranges::any_of(
      intervals, [&](std::int64_t n) { return n > 0 && (step % n == 0 || step == last_step); });
}

std::int64_t Rule::times_due(std::int64_t step, std::int64_t last_step) const {
  if (step >= last_step) return 0;
  std::int64_t count = due(last_step, last_step) ? 1 : 0;
  const auto add_multiples = [&](std::int64_t n, std::int64_t sign) {
    if (n > 0) count += sign * ((last_step - 1) / n - step / n);
  };
  for (const std::int64_t n : intervals) add_multiples(n, 1);
  if (intervals.size() < 2 || intervals[0] <= 0 || intervals[1] <= 0) return count;
  const std::int64_t rest = intervals[1] / std::gcd(intervals[0], intervals[1]);
  if (intervals[0] <= last_step / rest) add_multiples(intervals[0] * rest, -1);
  return count;
}

}  // namespace llmc
