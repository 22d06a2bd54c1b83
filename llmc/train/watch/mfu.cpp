#include "llmc/train/watch/mfu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace llmc {

namespace {

std::string teraflops(double flops) {
  char text[32];
  const char* format = flops < 1e12   ? "%.3g TFLOP/s"
                       : flops < 1e13 ? "%.2f TFLOP/s"
                                      : "%.0f TFLOP/s";
  std::snprintf(text, sizeof text, format, 1e-12 * flops);
  return text;
}

}  // namespace

std::string mfu_text(const Peak& peak, int ranks) {
  return "MFU: 6N + 6LTC FLOP per token (causal attention); with 'full', 6N + 12LTC; relative to " +
         (ranks > 1 ? std::to_string(ranks) + " x " : "") + teraflops(peak.flops) + " (" +
         peak.origin + ")";
}

std::string MfuMeter::add_step(double flops) {
  if (!(flops > peak_.flops) || std::isinf(flops)) return {};
  const std::string step = "MFU: a step computes " + teraflops(flops) + ", more than the peak of " +
                           teraflops(peak_.flops) + " (" + peak_.origin + ")";
  if (!peak_.is_measured) {
    if (std::exchange(has_warned_, true)) return {};
    return step + ", and its MFU is not reported; --peak-tflops sets a higher peak";
  }
  // Each measurement takes a moment, and a step that is faster than several of them needs none.
  constexpr int kMaxMeasurements = 3;
  const bool measures = measure_ && num_measurements_ < kMaxMeasurements;
  const double measured = measures ? measure_() : 0;
  peak_.flops = std::max(flops, measured);
  if (!measures) return {};
  ++num_measurements_;
  return step + "; the peak is measured again and is now " + teraflops(peak_.flops);
}

double MfuMeter::fraction(double flops) const {
  return flops <= peak_.flops ? flops / peak_.flops : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace llmc
