#include "llmc/models/pretrained.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

std::optional<StartingWeights> starting_weights(const Request& request,
                                                const std::optional<RecordedRun>& run) {
  if (run) return StartingWeights{run->checkpoint.string(), run->shape, true};
  if (!request.model.init_from) return std::nullopt;
  const std::string& path = *request.model.init_from;
  return StartingWeights{path, read_pretrained_shape(path)};
}

}  // namespace llmc
