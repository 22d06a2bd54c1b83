#include "llmc/io/checkpoint/history.h"

#include <algorithm>

#include "llmc/base/error.h"

namespace llmc {

void TrainingStretch::add_step(std::int64_t step_tokens, double learning_rate) {
  if (empty()) first_lr = learning_rate;
  last_step = std::max(last_step, first_step - 1) + 1;
  last_lr = learning_rate;
  max_lr = std::max(max_lr, learning_rate);
  tokens += step_tokens;
}

Json history_to_json(const TrainingHistory& history) {
  Json list = Json::array();
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

TrainingHistory history_from_json(const Json& list, const std::string& what) {
  const auto member = [&](const Json& object, const char* key) {
    const Json* value = object.is_object() ? json_member(object, key) : nullptr;
    if (value == nullptr) fail(what + ": a stretch of the history has no \"" + key + "\"");
    return *value;
  };
  TrainingHistory history;
  for (const Json& json : list) {
    TrainingStretch stretch;
    stretch.first_step = json_size(member(json, "first_step"), what + ": first_step");
    stretch.last_step = json_size(member(json, "last_step"), what + ": last_step");
    stretch.tokens = json_size(member(json, "tokens"), what + ": tokens of a stretch");
    stretch.train = json_text(member(json, "train"), what + ": train of a stretch");
    stretch.first_lr = json_scalar(member(json, "first_lr"), what).number("first_lr");
    stretch.last_lr = json_scalar(member(json, "last_lr"), what).number("last_lr");
    stretch.max_lr = json_scalar(member(json, "max_lr"), what).number("max_lr");
    for (const Json& change : member(json, "changes")) {
      stretch.changes.push_back(json_text(change, what + ": a change in the history"));
    }
    history.push_back(stretch);
  }
  return history;
}

}  // namespace llmc
