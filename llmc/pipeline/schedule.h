// Pipeline schedules: which passes each rank computes, and in which order. They are pure functions
// of the pipeline's shape.
//
// A pipeline of p ranks with v chunks per rank has p v stages, ranges of blocks in the order of the
// model; stage s is on rank s mod p. A micro-batch passes forward through all stages in ascending
// order, then backward through all in descending order.
//
// One chunk: 1F1B (Narayanan et al., 2019; the variant with a flush of Narayanan et al., 2021).
// Several chunks: interleaved 1F1B (Narayanan et al., 2021). Both have the order of
// torch.distributed.pipelining.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

enum class PassKind { forward, backward };

// A pass of a micro-batch through a stage. Its name is that of PyTorch's schedules: "2F0" is the
// forward pass of micro-batch 0 through stage 2, "2B0" its backward pass.
struct PipelinePass {
  int stage = 0;
  PassKind kind = PassKind::forward;
  int micro_batch = 0;

  bool operator==(const PipelinePass&) const = default;
  std::string name() const {
    return std::to_string(stage) + (kind == PassKind::forward ? "F" : "B") +
           std::to_string(micro_batch);
  }
};

struct PipelineShape {
  int ranks = 1, micro_batches = 1, chunks = 1;

  int stages() const { return ranks * chunks; }
  int rank_of(int stage) const { return stage % ranks; }
  // Passes of a rank in each direction.
  int passes() const { return micro_batches * chunks; }
};

// The passes of each rank in order.
using PipelineSchedule = std::vector<std::vector<PipelinePass>>;

namespace pipeline_detail {
// Forward passes of a rank before its first pair of a forward and a backward pass.
inline int warm_up(const PipelineShape& shape, int rank) {
  const int hops = shape.ranks - 1 - rank;
  const int forwards = shape.chunks == 1 ? hops : (shape.chunks - 1) * shape.ranks + 2 * hops;
  return std::min(forwards, shape.passes());
}

// The i-th forward or backward pass of a rank. With several chunks, `ranks` micro-batches pass
// through a chunk before they pass through the next one.
inline PipelinePass pass_of(const PipelineShape& shape, int rank, PassKind kind, int i) {
  if (shape.chunks == 1) return {rank, kind, i};
  const int p = shape.ranks, v = shape.chunks, chunk = i / p % v;
  const int place = kind == PassKind::forward ? chunk : v - 1 - chunk;
  return {place * p + rank, kind, i / (p * v) * p + i % p};
}
}  // namespace pipeline_detail

// The largest number of micro-batches of chunks whose forward pass a rank has computed and whose
// backward pass it has not: the number of slots of activations that the schedule needs.
inline int pipeline_slots(const PipelineShape& shape, int rank) {
  return std::min(pipeline_detail::warm_up(shape, rank) + 1, shape.passes());
}

// Throws an Error if a number is below 1, or if micro-batches are not a multiple of the ranks of an
// interleaved schedule.
inline void check_pipeline(const PipelineShape& shape) {
  require(shape.ranks >= 1 && shape.micro_batches >= 1 && shape.chunks >= 1,
          "pipeline: " + std::to_string(shape.ranks) + " ranks, " +
              std::to_string(shape.micro_batches) + " micro-batches, " +
              std::to_string(shape.chunks) + " chunks per rank; allowed: 1 or more of each");
  require(shape.chunks == 1 || shape.micro_batches % shape.ranks == 0,
          "pipeline: " + std::to_string(shape.micro_batches) + " micro-batches and " +
              std::to_string(shape.chunks) + " chunks per rank; allowed with several chunks: a " +
              "multiple of the " + std::to_string(shape.ranks) + " ranks",
          "use one chunk per rank, or another number of micro-batches");
}

// The passes of one rank.
inline std::vector<PipelinePass> pipeline_passes(const PipelineShape& shape, int rank) {
  const int total = shape.passes(), warm_up = pipeline_detail::warm_up(shape, rank);
  std::vector<PipelinePass> passes;
  const auto add = [&](PassKind kind, int i) {
    passes.push_back(pipeline_detail::pass_of(shape, rank, kind, i));
  };
  for (int i = 0; i < total + warm_up; ++i) {
    if (i < total) add(PassKind::forward, i);
    if (i >= warm_up) add(PassKind::backward, i - warm_up);
  }
  return passes;
}

inline PipelineSchedule pipeline_schedule(const PipelineShape& shape) {
  check_pipeline(shape);
  PipelineSchedule schedule;
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.push_back(pipeline_passes(shape, rank));
  return schedule;
}

}  // namespace llmc
