#include "llmc/io/data/interleave.h"

#include <cstddef>
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include "llmc/base/error.h"

namespace llmc {

Interleave::Interleave(std::vector<std::int64_t> weights) : weights_(std::move(weights)) {
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

Interleave::Location Interleave::operator[](std::int64_t g) const {
  const Slot& slot = slots_[static_cast<std::size_t>(g % period_)];
  const std::int64_t offset = g / period_ * weights_[slot.source];
  return {slot.source, offset + slot.num_earlier};
}

double Interleave::fraction(std::int64_t source) const {
  return static_cast<double>(weights_[static_cast<std::size_t>(source)]) /
         static_cast<double>(period_);
}

void Interleave::arrange() {
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

}  // namespace llmc
