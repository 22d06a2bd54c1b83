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
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"

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
  explicit Interleave(std::vector<std::int64_t> weights) : weights_(std::move(weights)) {
    std::int64_t divisor = 0;
    for (const std::int64_t w : weights_) {
      require(w > 0, "a weight that is not above 0", "give weights above 0");
      divisor = std::gcd(divisor, w);
    }
    for (std::int64_t& w : weights_) {
      w /= divisor;
      if (w > kMaxPeriod || (period_ += w) > kMaxPeriod) {
        fail("weights that add up to more than " + std::to_string(kMaxPeriod) +
                 " after division by their greatest common divisor",
             "give weights with fewer digits");
      }
    }
    arrange();
  }

  // Constant time.
  Location operator[](std::int64_t g) const {
    const Slot& slot = slots_[static_cast<std::size_t>(g % period_)];
    const std::int64_t offset = g / period_ * weights_[slot.source];
    return {slot.source, offset + slot.num_earlier};
  }

  std::int64_t sources() const { return static_cast<std::int64_t>(weights_.size()); }

  // The fraction of samples that come from this source.
  double fraction(std::int64_t source) const {
    return static_cast<double>(weights_[static_cast<std::size_t>(source)]) /
           static_cast<double>(period_);
  }

 private:
  struct Slot {
    std::uint32_t source;
    std::uint32_t num_earlier;  // number of earlier samples of the source in this period
  };

  // Assigns each place to the source whose next sample is due first, among the sources whose next
  // sample may be taken there. Takes O(period · log sources), which is fast even for hundreds of
  // sources.
  void arrange() {
    using Candidate = std::pair<std::int64_t, std::size_t>;  // a place, and the sample's source
    using MinQueue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;
    MinQueue pending;  // by the first place where the sample may be taken
    MinQueue ready;    // by the place before which the sample is due
    std::vector<std::int64_t> num_assigned(weights_.size());
    for (std::size_t s = 0; s < weights_.size(); ++s) pending.emplace(0, s);
    slots_.reserve(static_cast<std::size_t>(period_));
    for (std::int64_t place = 0; place < period_; ++place) {
      for (; !pending.empty() && pending.top().first <= place; pending.pop()) {
        const std::size_t s = pending.top().second;
        ready.emplace(((num_assigned[s] + 1) * period_ + weights_[s] - 1) / weights_[s], s);
      }
      const std::size_t source = ready.top().second;
      ready.pop();
      slots_.push_back(
          {static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(num_assigned[source])});
      ++num_assigned[source];
      pending.emplace(num_assigned[source] * period_ / weights_[source], source);
    }
  }

  std::vector<std::int64_t> weights_;
  std::int64_t period_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace llmc
