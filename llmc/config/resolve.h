// Computes the configuration of a run from its flags.
#pragma once

#include <cstdint>

#include "llmc/config/train_settings.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc {

// Whether the flags request training. --epochs always means at least one step.
bool requests_training(const Request& request, const RunFacts& facts);

// Returns the pipeline of a model of `layers` layers. Reads --pp-schedule. Throws if the layers
// cannot be divided like this, or if the schedule cannot run.
Pipeline pipeline_of(const RunConfig& config, std::int64_t layers);

// Returns the settings that reading the data depends on; `facts.windows` may still be unknown.
// Throws if flags conflict. With --epochs, resolve() checks the schedule, once the steps are known.
InputConfig resolve_inputs(const Request& request, const RunFacts& facts);

// Returns the configuration of a run. With --epochs, `facts.windows` must be known. Throws if flags
// conflict with each other or with the facts.
RunConfig resolve(const Request& request, const RunFacts& facts);

}  // namespace llmc
