// Computes the configuration of a run from its flags.
#pragma once

#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/train/schedule.h"

namespace llmc {

// Whether the flags request training. --epochs always means at least one step.
inline bool requests_training(const Request& request, const RunFacts& facts) {
  if (request.schedule.epochs) return true;
  return request.schedule.steps.value_or(facts.preset.schedule.steps.value_or(1)) > 0;
}

// Returns the settings that reading the data depends on; `facts.windows` may still be unknown.
// Throws if flags conflict. With --epochs, resolve() checks the schedule, once the steps are known.
inline InputConfig resolve_inputs(const Request& request, const RunFacts& facts) {
  const RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  if (!request.schedule.epochs) make_schedule(config.schedule);
  return config;
}

// Returns the configuration of a run. With --epochs, `facts.windows` must be known. Throws if flags
// conflict with each other or with the facts.
inline RunConfig resolve(const Request& request, const RunFacts& facts) {
  RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  config.shape = model_shape(config, facts);
  make_schedule(config.schedule);
  return config;
}

}  // namespace llmc
