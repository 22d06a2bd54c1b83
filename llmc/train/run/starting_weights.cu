#include "llmc/models/pretrained.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

std::optional<StartingWeights> starting_weights(const Request& request,
                                                const std::optional<RecordedRun>& run) {
  if (!run && !request.model.init_from) return std::nullopt;
  const std::string path = run ? run->checkpoint.string() : *request.model.init_from;
  const HuggingFaceConfig config = read_pretrained_config(path);
  return StartingWeights{path, run ? run->shape : pretrained_shape(path, config), run.has_value(),
                         config.label_names};
}

}  // namespace llmc
