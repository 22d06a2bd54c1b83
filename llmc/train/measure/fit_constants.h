// The constants of a machine with which the predicted parts of steps have the times that were
// measured on it.
#pragma once

#include <vector>

#include "llmc/plan/time/machine.h"
#include "llmc/plan/time/software.h"
#include "llmc/train/measure/step_parts.h"

namespace llmc {

// Sets product_rate, product_start, attention_rate, memory_bandwidth, layer_start and
// optimizer_scale, each by the operations that it decides. `machine` has the peak of the dtype, and
// `software` the bytes of its weights.
void fit_constants(Machine& machine, const Software& software,
                   const std::vector<ProfiledStep>& steps);

}  // namespace llmc
