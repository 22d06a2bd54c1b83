// The model FLOP utilisation (MFU) of steps, which is never more than 100%.
//
// A measured peak can be too low: other programs used the processor during the measurement, or it
// had not reached its highest clock. If a step is faster, the peak is measured again, and is at
// least the speed of that step. A peak of --peak-tflops or of a data sheet does not change: the MFU
// of a faster step is not a number (null in the log), and one warning states why.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace llmc {

// The peak that MFU is relative to, and its origin. MFU is the fraction of the peak that a run
// reaches.
struct Peak {
  double flops = 0;  // 0: not measured yet
  std::string origin;
  bool is_measured = false;
};

inline std::string teraflops(double flops) {
  char text[32];
  const char* format = flops < 1e12   ? "%.3g TFLOP/s"
                       : flops < 1e13 ? "%.2f TFLOP/s"
                                      : "%.0f TFLOP/s";
  std::snprintf(text, sizeof text, format, 1e-12 * flops);
  return text;
}

// The definition of MFU in a run of so many ranks, for stderr.
inline std::string mfu_text(const Peak& peak, int ranks) {
  return "MFU: 6N + 6LTC FLOP per token (causal attention); with 'full', 6N + 12LTC; relative to " +
         (ranks > 1 ? std::to_string(ranks) + " x " : "") + teraflops(peak.flops) + " (" +
         peak.origin + ")";
}

class MfuMeter {
 public:
  // measure() -> FLOP/s of a rank; empty if the peak cannot be measured during the run. On several
  // ranks, all measure together.
  MfuMeter(Peak peak, std::function<double()> measure)
      : peak_(std::move(peak)), measure_(std::move(measure)) {}

  // Takes the speed of a step, in FLOP/s per rank, into account. Ranks that pass the same speeds
  // measure in the same steps. Returns a message for the user, or an empty text.
  std::string add_step(double flops) {
    if (!(flops > peak_.flops) || std::isinf(flops)) return {};
    const std::string step = "MFU: a step computes " + teraflops(flops) +
                             ", more than the peak of " + teraflops(peak_.flops) + " (" +
                             peak_.origin + ")";
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

  // The fraction of the peak that so many FLOP/s per rank are; not a number if they are more.
  double fraction(double flops) const {
    return flops <= peak_.flops ? flops / peak_.flops : std::numeric_limits<double>::quiet_NaN();
  }

  const Peak& peak() const { return peak_; }

 private:
  Peak peak_;
  std::function<double()> measure_;
  int num_measurements_ = 0;
  bool has_warned_ = false;
};

}  // namespace llmc
