// The part of the model that one call, or one pipeline rank, computes.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/pipeline/pipeline.h"

namespace llmc {

// The blocks [first, end), at least one, with or without the embedding and the head (final norm and
// logits). A stage without the embedding starts from a residual stream that the caller writes. A
// stage without the head ends with a residual stream.
struct Stage {
  std::int64_t first = 0, end = 0;
  bool embedding = true, head = true;

  std::int64_t blocks() const { return end - first; }
};

// The stages of a pipeline rank, in the order of the model, which has `layers` blocks.
std::vector<Stage> stages_of(const Pipeline& pipeline, int rank, std::int64_t layers);

}  // namespace llmc
