#include "llmc/train/watch/eta.h"

#include <cmath>

namespace llmc {

void Eta::set_guess(WorkKind work, double steps, double seconds) {
  kind_of(work).guess_steps = steps;
  kind_of(work).guess_seconds = seconds;
}

void Eta::finished(WorkKind work, double seconds) {
  Kind& kind = kind_of(work);
  if (kind.left > 0) --kind.left;
  const bool warm_up = work == WorkKind::step && !first_step_done_;
  if (work == WorkKind::step) first_step_done_ = true;
  if (!warm_up) kind.measure(seconds);
}

std::optional<double> Eta::seconds_left() const {
  const std::optional<double> step = kinds_[0].mean();
  if (!step) return std::nullopt;
  double total = 0;
  for (const Kind& kind : kinds_) {
    const double guess = kind.guess_steps * *step + kind.guess_seconds;
    total += static_cast<double>(kind.left) * kind.mean().value_or(guess);
  }
  return total;
}

void Eta::Kind::measure(double duration) {
  constexpr double kFadingSeconds = 60;
  const double kept = std::exp(-duration / kFadingSeconds);
  seconds = seconds * kept + duration;
  count = count * kept + 1;
}

}  // namespace llmc
