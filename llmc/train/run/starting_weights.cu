#include <filesystem>
#include <iterator>

#include "llmc/models/pretrained.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

namespace {

// A classifier's adapter has the head, and next to it config.json with the labels, except if PEFT
// has written it: then the data define the labels.
void add_adapter_labels(StartingWeights& weights, const std::string& adapter) {
  if (!std::filesystem::exists(std::filesystem::path(adapter) / kConfigName)) return;
  const HuggingFaceConfig config = read_pretrained_config(adapter);
  if (config.label_names.empty()) return;
  weights.label_names = config.label_names;
  weights.shape.labels = std::ssize(config.label_names);
}

}  // namespace

std::optional<StartingWeights> starting_weights(const Request& request,
                                                const std::optional<RecordedRun>& run) {
  if (!run && !request.model.init_from) return std::nullopt;
  const std::string path = run ? run->checkpoint.string() : *request.model.init_from;
  const HuggingFaceConfig config = read_pretrained_config(path);
  StartingWeights weights{path, run ? run->shape : pretrained_shape(path, config), run.has_value(),
                          config.label_names};
  if (!run && request.finetune.adapter) add_adapter_labels(weights, *request.finetune.adapter);
  return weights;
}

}  // namespace llmc
