// The result of --check-links as text: the speed of each device, and of the all-reduce of each pair
// of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/machines.h"
#include "llmc/io/run_log.h"

namespace llmc {

// The all-reduce of some ranks.
struct LinkSpeed {
  int first = 0, second = 0;  // the pair; unused for all ranks
  double latency_us = 0;      // of one number
  double bytes_per_s =
      0;  // that each rank sends in a ring, of a large all-reduce: its "bus bandwidth"
};

struct LinkReport {
  std::vector<RankPlace> places;    // of all ranks
  std::vector<double> flops_per_s;  // matrix products in --dtype, of each rank
  std::vector<LinkSpeed> pairs;     // first < second; empty with one rank
  LinkSpeed all;                    // of all ranks together
  std::int64_t bytes = 0;           // of the large all-reduce
};

// A device or a pair that is slower than the median of its kind by more than 20%: "rank 3" or
// "ranks 0-3", with the rest of the sentence in `reason`. Pairs on one machine and pairs of two
// machines are different kinds.
struct SlowPart {
  std::string name, reason;
};
std::vector<SlowPart> slow_parts(const LinkReport& report);

// The table and the slow parts. With more than 16 ranks, only the pairs that are slow, and the
// range of the others.
std::string link_report_text(const LinkReport& report);

// The line of the log, after `step`.
LogRecord link_record(std::int64_t step, const LinkReport& report);

}  // namespace llmc
