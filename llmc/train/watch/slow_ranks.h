// Finds ranks that compute more slowly than others with the same work: a GPU that is throttled, a
// machine that other programs use.
//
// Waiting for other ranks is not a rank's own time. On a CPU, collectives block the host in the
// phases of communication and in `bubble`, so these phases are waits there as well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/machines.h"
#include "llmc/comm/mesh.h"
#include "llmc/device/phase_clock.h"

namespace llmc {

// The time of a rank's step in milliseconds, by its cause. The phase `other` is in none of them.
struct RankTimes {
  double compute = 0;  // forward, backward, recompute, optimizer, and offloaded state
  double wait = 0;     // for other ranks
  double data = 0;     // for the micro-batches
};

RankTimes rank_times(const PhaseTimes& phases);

struct SlowRank {
  int rank = 0;
  std::vector<int> compared;  // the ranks with the same work, `rank` among them
  // Means over the last kSlowSteps steps, in milliseconds.
  double own = 0, median = 0;
};

class SlowRanks {
 public:
  // A rank is slow if its own time (compute and data) is more than kSlowFactor times the median of
  // the ranks with the same work, for kSlowSteps steps in a row.
  static constexpr double kSlowFactor = 1.2;
  static constexpr int kSlowSteps = 20;

  explicit SlowRanks(const Mesh& mesh);

  // Adds the times of all ranks in a step. Returns the ranks that this step makes slow. A rank is
  // returned again only after kSlowSteps steps in a row in which it was not slow.
  //
  // Ranks have the same work if they are at the same place of the pipeline. Of an even number of
  // ranks, the median is the lower one of the two in the middle, so of two ranks it is the time of
  // the faster one. A single rank is compared with none.
  std::vector<SlowRank> add_step(const std::vector<RankTimes>& ranks);

 private:
  struct State {
    bool is_slow = false;
    int steps = 0;               // in a row that contradict is_slow
    double own = 0, median = 0;  // sums over them
  };

  std::vector<std::vector<int>> groups_;  // of ranks with the same work
  std::vector<State> states_;             // of each rank
};

// "rank 3 (node07, NVIDIA H100 at 0000:81:00.0) is slow: ..."
std::string slow_rank_text(const SlowRank& slow, const RankPlace& place);

}  // namespace llmc
