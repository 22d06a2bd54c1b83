#include "llmc/config/learning_rate_schedule.h"

#include <cmath>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

double Schedule::rate(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::wsd) return peak * wsd_fraction(step);
  if (decay == Decay::constant || steps <= warmup + 1) return peak;
  const double progress =
      std::fmin(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - 1 - warmup));
  constexpr double kPi = 3.14159265358979323846;
  const double remaining =
      decay == Decay::linear ? 1 - progress : 0.5 * (1 + std::cos(kPi * progress));
  return peak * (final_fraction + (1 - final_fraction) * remaining);
}

double Schedule::wsd_fraction(std::int64_t step) const {
  const std::int64_t decay_step = step + 1 - (steps - decay_steps);
  if (decay_step <= 0) return 1;
  const double remaining = 1 - static_cast<double>(decay_step) / static_cast<double>(decay_steps);
  return final_fraction + (1 - final_fraction) * std::fmax(0.0, remaining);
}

std::int64_t wsd_decay_steps(std::int64_t steps, std::int64_t warmup, double fraction) {
  const auto rounded_steps =
      static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(steps)));
  const std::int64_t decay = rounded_steps > 1 || fraction == 0 ? rounded_steps : 1;
  if (decay <= steps - warmup) return decay;
  fail_usage(
      "--schedule wsd: " + std::to_string(warmup) + " steps of warm-up and " +
          std::to_string(decay) + " of decay do not fit into a run of " + std::to_string(steps) +
          " steps",
      "lower --warmup or --decay-fraction: --warmup + --decay-fraction x --steps must be at most "
      "--steps");
}

Schedule make_schedule(const ScheduleSettings<Resolved>& settings) {
  Schedule schedule{.decay = settings.decay,
                    .peak = settings.peak,
                    .final_fraction = settings.final_fraction,
                    .warmup = settings.warmup,
                    .steps = settings.steps};
  if (settings.decay == Decay::wsd && settings.steps > 0) {
    schedule.decay_steps =
        wsd_decay_steps(settings.steps, settings.warmup, settings.decay_fraction);
  }
  return schedule;
}

}  // namespace llmc
