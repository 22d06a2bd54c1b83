#include "llmc/pipeline/schedule.h"

#include <algorithm>

#include "llmc/base/error.h"

namespace llmc {

std::string PipelinePass::name() const {
  return std::to_string(stage) + (kind == PassKind::forward ? "F" : "B") +
         std::to_string(micro_batch);
}

namespace {

// Forward passes of a rank before its first pair of a forward and a backward pass.
int warm_up_passes(const PipelineShape& shape, int rank) {
  const int hops = shape.ranks - 1 - rank;
  const int forwards = shape.chunks == 1 ? hops : (shape.chunks - 1) * shape.ranks + 2 * hops;
  return std::min(forwards, shape.passes());
}

// The i-th forward or backward pass of a rank. With several chunks, `ranks` micro-batches pass
// through a chunk before they pass through the next one.
PipelinePass pass_of(const PipelineShape& shape, int rank, PassKind kind, int i) {
  if (shape.chunks == 1) return {rank, kind, i};
  const int p = shape.ranks, v = shape.chunks, chunk = i / p % v;
  const int place = kind == PassKind::forward ? chunk : v - 1 - chunk;
  return {place * p + rank, kind, i / (p * v) * p + i % p};
}

}  // namespace

int pipeline_slots(const PipelineShape& shape, int rank) {
  return std::min(warm_up_passes(shape, rank) + 1, shape.passes());
}

namespace {

// Throws an Error if a number is below 1, or if micro-batches are not a multiple of the ranks of an
// interleaved schedule.
void check_pipeline(const PipelineShape& shape) {
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
std::vector<PipelinePass> pipeline_passes(const PipelineShape& shape, int rank) {
  const int total = shape.passes(), warm_up = warm_up_passes(shape, rank);
  std::vector<PipelinePass> passes;
  const auto add = [&](PassKind kind, int i) { passes.push_back(pass_of(shape, rank, kind, i)); };
  for (int i = 0; i < total + warm_up; ++i) {
    if (i < total) add(PassKind::forward, i);
    if (i >= warm_up) add(PassKind::backward, i - warm_up);
  }
  return passes;
}

}  // namespace

PipelineSchedule pipeline_schedule(const PipelineShape& shape) {
  check_pipeline(shape);
  PipelineSchedule schedule;
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.push_back(pipeline_passes(shape, rank));
  return schedule;
}

}  // namespace llmc
