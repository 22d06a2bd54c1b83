#include "llmc/train/watch/slow_ranks.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "llmc/base/number_text.h"
#include "llmc/comm/compare_ranks.h"

namespace llmc {

RankTimes rank_times(const PhaseTimes& phases) {
  const auto sum = [&](std::initializer_list<Phase> some) {
    double sum = 0;
    for (const Phase phase : some) sum += phases[static_cast<std::size_t>(phase)];
    return sum;
  };
  return {.compute = sum({Phase::forward, Phase::backward, Phase::recompute, Phase::offload,
                          Phase::optimizer}),
          .wait = sum({Phase::tensor_communication, Phase::pipeline_communication,
                       Phase::data_communication, Phase::bubble}),
          .data = sum({Phase::data})};
}

SlowRanks::SlowRanks(const Mesh& mesh) : states_(static_cast<std::size_t>(mesh.ranks)) {
  groups_.resize(static_cast<std::size_t>(mesh.pipeline_ranks));
  for (int rank = 0; rank < mesh.ranks; ++rank) {
    groups_[static_cast<std::size_t>(mesh.pipeline_rank(rank))].push_back(rank);
  }
}

std::vector<SlowRank> SlowRanks::add_step(const std::vector<RankTimes>& ranks) {
  const auto own_time = [&](int rank) {
    const RankTimes& times = ranks[static_cast<std::size_t>(rank)];
    return times.compute + times.data;
  };
  std::vector<SlowRank> slow_ranks;
  for (const std::vector<int>& group : groups_) {
    if (group.size() < 2) continue;
    std::vector<double> sorted;
    for (const int rank : group) sorted.push_back(own_time(rank));
    std::ranges::sort(sorted);
    const double median = sorted[(sorted.size() - 1) / 2];
    for (const int rank : group) {
      State& state = states_[static_cast<std::size_t>(rank)];
      const bool is_slow = own_time(rank) > kSlowFactor * median;
      if (is_slow == state.is_slow) {
        state = {.is_slow = is_slow};
        continue;
      }
      state.steps += 1;
      state.own += own_time(rank);
      state.median += median;
      if (state.steps < kSlowSteps) continue;
      if (is_slow) {
        slow_ranks.push_back({rank, group, state.own / kSlowSteps, state.median / kSlowSteps});
      }
      state = {.is_slow = is_slow};
    }
  }
  return slow_ranks;
}

std::string slow_rank_text(const SlowRank& slow, const RankPlace& place) {
  return "rank " + std::to_string(slow.rank) + " (" + place_text(place) +
         ") is slow: it computed " + number_text("%.1f ms", slow.own) + " per step for " +
         std::to_string(SlowRanks::kSlowSteps) + " steps, the median of " +
         rank_list(slow.compared) + number_text(" is %.1f ms", slow.median);
}

}  // namespace llmc
