// Samples from several sources in exact proportion. The source of sample g, and which of that
// source's samples it is, depend only on g.
//
// The weights are integers w_s with the sum W. The order repeats after W samples, of which w_s come
// from source s. Within the W samples the order is a fair schedule. The i-th sample of source s may
// be taken from place floor(i W / w_s) on and is due before place ceil((i + 1) W / w_s). Of the
// samples that may be taken, the schedule takes the one that is due first. Such a schedule always
// meets its deadlines (Baruah, Cohen, Plaxton and Varvel, "Proportionate progress", 1996). So after
// any n samples the count of every source is within one of n w_s / W.
#pragma once

#include <cstdint>
#include <vector>

namespace llmc {

class Interleave {
 public:
  // Maximum period W. It limits the number of digits of the weights.
  static constexpr std::int64_t kMaxPeriod = 1'000'000;

  struct Location {
    std::int64_t source;
    std::int64_t sample;  // index within this source, from 0
  };

  // Throws unless all weights are positive and their sum, after division by their greatest common
  // divisor, is at most kMaxPeriod.
  explicit Interleave(std::vector<std::int64_t> weights);

  // Constant time.
  Location operator[](std::int64_t g) const;

  std::int64_t sources() const { return static_cast<std::int64_t>(weights_.size()); }

  // The fraction of samples that come from this source.
  double fraction(std::int64_t source) const;

 private:
  struct Slot {
    std::uint32_t source;
    std::uint32_t num_earlier;  // number of earlier samples of the source in this period
  };

  // Assigns each place to the source whose next sample is due first, among the sources whose next
  // sample may be taken there. Takes O(period · log sources), which is fast even for hundreds of
  // sources.
  void arrange();

  std::vector<std::int64_t> weights_;
  std::int64_t period_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace llmc
