// The learning rate of a step.
#pragma once

#include <cstdint>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/config/train_optimizer_settings.h"

namespace llmc {

struct Schedule {
  Decay decay = Decay::cosine;
  double peak = 0;               // learning rate after warm-up
  double final_fraction = 0;     // rate at the last step / peak; a constant schedule ignores it
  std::int64_t warmup = 0;       // steps of linear warm-up
  std::int64_t steps = 1;        // steps of the whole run
  std::int64_t decay_steps = 0;  // wsd: number of last steps in which the rate falls

  // `step` counts from 0. Warm-up starts at peak / warmup, so that the first step has an effect.
  double rate(std::int64_t step) const;

 private:
  // Fraction of the peak: 1 at the last step before the decay, final_fraction at the last step.
  double wsd_fraction(std::int64_t step) const;
};

// Number of decay steps of wsd: this fraction of the run, rounded, and at least 1 unless the
// fraction is 0. Throws if warm-up and decay together have more steps than the run.
std::int64_t wsd_decay_steps(std::int64_t steps, std::int64_t warmup, double fraction);

// Throws if a wsd run is too short for its warm-up and decay.
Schedule make_schedule(const ScheduleSettings<Resolved>& settings);

}  // namespace llmc
