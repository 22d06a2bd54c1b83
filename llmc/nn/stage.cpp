#include "llmc/nn/stage.h"

#include <cstddef>

namespace llmc {

std::vector<Stage> stages_of(const Pipeline& pipeline, int rank, std::int64_t layers) {
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
