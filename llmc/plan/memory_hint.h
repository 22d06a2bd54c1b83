// Allocates the memory of a run; if the run does not fit, suggests settings that fit (fit_hint.h).
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

// Reports the device and the memory of a run, then allocates it. Throws with a hint if it does not
// fit. Ranks on the same device share its memory. Returns the bytes of each rank. All ranks call
// this together.
std::vector<std::int64_t> allocate(TrainingRunner& runner, Exchange& exchange);

}  // namespace llmc
