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
inline std::vector<Stage> stages_of(const Pipeline& pipeline, int rank, std::int64_t layers) {
  if (pipeline.single()) return {{.end = layers}};
  const int last = pipeline.shape.stages() - 1;
  std::vector<Stage> stages;
  for (int s = rank; s <= last; s += pipeline.shape.ranks) {
    const auto i = static_cast<std::size_t>(s);
    stages.push_back({pipeline.bounds[i], pipeline.bounds[i + 1], s == 0, s == last});
  }
  return stages;
}

}  // namespace llmc
