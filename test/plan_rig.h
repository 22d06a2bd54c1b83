// Memory and traffic of ranks, for comparisons with formulae.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/plan/step_traffic.h"

namespace llmc_test {

using namespace llmc;

inline GroupTraffic bytes_of(const Communicator& group) {
  return {.all_reduce = group.traffic(CommKind::all_reduce).bytes,
          .reduce_scatter = group.traffic(CommKind::reduce_scatter).bytes,
          .all_gather = group.traffic(CommKind::all_gather).bytes,
          .broadcast = group.traffic(CommKind::broadcast).bytes,
          .message = group.traffic(CommKind::message).bytes};
}

inline GroupTraffic data_bytes(Ranks& ranks) {
  return bytes_of(ranks.shard()) + bytes_of(ranks.replica()) + bytes_of(ranks.data());
}

inline GroupTraffic operator-(GroupTraffic a, const GroupTraffic& b) {
  return a += b * -1;
}

// For comparisons of two: errors print both.
inline std::string text_of(const GroupTraffic& traffic) {
  return "all-reduce " + std::to_string(traffic.all_reduce) + ", reduce-scatter " +
         std::to_string(traffic.reduce_scatter) + ", all-gather " +
         std::to_string(traffic.all_gather) + ", broadcast " + std::to_string(traffic.broadcast) +
         ", messages " + std::to_string(traffic.message);
}

// The memory of a tensor of bytes, as the plan reserves it.
inline std::int64_t stored(std::int64_t bytes) {
  return round_up(bytes, std::int64_t{256});
}

inline std::int64_t segment_of(const std::vector<MemoryPlan::Segment>& plan,
                               const std::string& name) {
  for (const MemoryPlan::Segment& segment : plan) {
    if (segment.name == name) return segment.bytes;
  }
  return 0;
}

}  // namespace llmc_test
