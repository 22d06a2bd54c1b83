// The history of a run, in the manifest of its checkpoints and in the model card: stretches of
// steps with one training text and one set of flags.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/json_value.h"

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
  void add_step(std::int64_t step_tokens, double learning_rate) {
    if (empty()) first_lr = learning_rate;
    last_step = std::max(last_step, first_step - 1) + 1;
    last_lr = learning_rate;
    max_lr = std::max(max_lr, learning_rate);
    tokens += step_tokens;
  }
};

using TrainingHistory = std::vector<TrainingStretch>;

inline OrderedJson history_to_json(const TrainingHistory& history) {
  OrderedJson list = OrderedJson::array();
  for (const TrainingStretch& stretch : history) {
    list.push_back({{"first_step", stretch.first_step},
                    {"last_step", stretch.last_step},
                    {"tokens", stretch.tokens},
                    {"train", stretch.train},
                    {"first_lr", stretch.first_lr},
                    {"last_lr", stretch.last_lr},
                    {"max_lr", stretch.max_lr},
                    {"changes", stretch.changes}});
  }
  return list;
}

// Throws an error that begins with `what` if a member is missing or has another type.
inline TrainingHistory history_from_json(const OrderedJson& list, const std::string& what) {
  const auto member = [&](const OrderedJson& object, const char* key) {
    const OrderedJson* value = object.is_object() ? json_member(object, key) : nullptr;
    if (value == nullptr) fail(what + ": a stretch of the history has no \"" + key + "\"");
    return *value;
  };
  TrainingHistory history;
  for (const OrderedJson& json : list) {
    TrainingStretch stretch;
    stretch.first_step = json_size(member(json, "first_step"), what + ": first_step");
    stretch.last_step = json_size(member(json, "last_step"), what + ": last_step");
    stretch.tokens = json_size(member(json, "tokens"), what + ": tokens of a stretch");
    stretch.train = json_text(member(json, "train"), what + ": train of a stretch");
    stretch.first_lr = json_scalar(member(json, "first_lr"), what).number("first_lr");
    stretch.last_lr = json_scalar(member(json, "last_lr"), what).number("last_lr");
    stretch.max_lr = json_scalar(member(json, "max_lr"), what).number("max_lr");
    for (const OrderedJson& change : member(json, "changes")) {
      stretch.changes.push_back(json_text(change, what + ": a change in the history"));
    }
    history.push_back(stretch);
  }
  return history;
}

}  // namespace llmc
