// The history of a run, in the manifest of its checkpoints and in the model card: stretches of
// steps with one training text and one set of flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/json.h"

namespace llmc {

struct TrainingStretch {
  std::int64_t first_step = 1, last_step = 0;  // counted from 1; no step yet if last < first
  std::int64_t tokens = 0;                     // number of tokens trained on in these steps
  std::string train = {};                      // name of the training text
  // Learning rates of the first and the last step, and the highest; 0 if unknown (older manifests).
  double first_lr = 0, last_lr = 0, max_lr = 0;
  std::vector<std::string> changes =
      {};  // against the stretch before: "--lr was 0.1, it is 0.2 now"

  bool empty() const { return last_step < first_step; }

  // Counts the next step.
  void add_step(std::int64_t step_tokens, double learning_rate);
};

using TrainingHistory = std::vector<TrainingStretch>;

Json history_to_json(const TrainingHistory& history);

// Throws an error that begins with `what` if a member is missing or has another type.
TrainingHistory history_from_json(const Json& list, const std::string& what);

}  // namespace llmc
