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

#include <string>
#include <vector>

namespace llmc {

enum class PassKind { forward, backward };

// A pass of a micro-batch through a stage. Its name is that of PyTorch's schedules: "2F0" is the
// forward pass of micro-batch 0 through stage 2, "2B0" its backward pass.
struct PipelinePass {
  int stage = 0;
  PassKind kind = PassKind::forward;
  int micro_batch = 0;

  bool operator==(const PipelinePass&) const = default;
  std::string name() const;
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

// The largest number of micro-batches of chunks whose forward pass a rank has computed and whose
// backward pass it has not: the number of slots of activations that the schedule needs.
int pipeline_slots(const PipelineShape& shape, int rank);

PipelineSchedule pipeline_schedule(const PipelineShape& shape);

}  // namespace llmc
