// The model FLOP utilisation (MFU) of steps, which is never more than 100%.
//
// A measured peak can be too low: other programs used the processor during the measurement, or it
// had not reached its highest clock. If a step is faster, the peak is measured again, and is at
// least the speed of that step. A peak of --peak-tflops or of a data sheet does not change: the MFU
// of a faster step is not a number (null in the log), and one warning states why.
#pragma once

#include <functional>
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

// The definition of MFU in a run of so many ranks, for stderr.
std::string mfu_text(const Peak& peak, int ranks);

class MfuMeter {
 public:
  // measure() -> FLOP/s of a rank; empty if the peak cannot be measured during the run. On several
  // ranks, all measure together.
  MfuMeter(Peak peak, std::function<double()> measure)
      : peak_(std::move(peak)), measure_(std::move(measure)) {}

  // Takes the speed of a step, in FLOP/s per rank, into account. Ranks that pass the same speeds
  // measure in the same steps. Returns a message for the user, or an empty text.
  std::string add_step(double flops);

  // The fraction of the peak that so many FLOP/s per rank are; not a number if they are more.
  double fraction(double flops) const;

  const Peak& peak() const { return peak_; }

 private:
  Peak peak_;
  std::function<double()> measure_;
  int num_measurements_ = 0;
  bool has_warned_ = false;
};

}  // namespace llmc
