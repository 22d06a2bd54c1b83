// From the flags that were given to everything a run does.
#pragma once

#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/train/schedule.h"

namespace llmc {

// Whether the flags ask for training. --epochs is always more than no step.
inline bool asks_for_training(const Request& request, const RunFacts& facts) {
  if (request.schedule.epochs) return true;
  return request.schedule.steps.value_or(facts.preset.schedule.steps.value_or(1)) > 0;
}

// What reading the data depends on; `facts.windows` may still be unknown. Throws for flags that do
// not agree. With --epochs the schedule is checked in resolve(), when the steps are known.
inline InputConfig resolve_inputs(const Request& request, const RunFacts& facts) {
  const RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  if (!request.schedule.epochs) make_schedule(config.schedule);
  return config;
}

// The configuration of a run. With --epochs the training text must be known. Throws for flags that
// do not agree with each other or with the facts.
inline RunConfig resolve(const Request& request, const RunFacts& facts) {
  RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  config.shape = model_shape(config, facts);
  make_schedule(config.schedule);
  return config;
}

}  // namespace llmc
