// The learning rate of a step.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "llmc/device/error.h"

namespace llmc {

enum class Decay { cosine, linear, constant };

inline Decay parse_decay(const std::string& name) {
  if (name == "cosine") return Decay::cosine;
  if (name == "linear") return Decay::linear;
  if (name == "constant") return Decay::constant;
  fail("--schedule '" + name + "' is not known", "allowed: cosine, linear, constant");
}

struct Schedule {
  Decay decay = Decay::cosine;
  double peak = 6e-4;           // learning rate after the warm-up
  double final_fraction = 0.1;  // of the peak, at the last step; a constant schedule ignores it
  std::int64_t warmup = 0;      // steps of linear rise
  std::int64_t steps = 1;       // of the whole run

  // `step` counts from 0. The first step of a warm-up is not wasted on a rate of 0.
  double rate(std::int64_t step) const {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (decay == Decay::constant || steps <= warmup + 1) return peak;
    const double done = std::fmin(
        1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - 1 - warmup));
    constexpr double kPi = 3.14159265358979323846;
    const double left = decay == Decay::linear ? 1 - done : 0.5 * (1 + std::cos(kPi * done));
    return peak * (final_fraction + (1 - final_fraction) * left);
  }
};

}  // namespace llmc
