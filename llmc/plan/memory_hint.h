// Allocates the memory of a run; if the run does not fit, suggests settings that fit (fit_hint.h).
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

// Reports the device and the memory of a run, then allocates it. Throws with a hint if it does not
// fit. Ranks on the same device share its memory, and those on the same machine its host memory.
// `micro_batches`: of a rank's step. Returns the bytes of each rank. All ranks call this together.
std::vector<std::int64_t> allocate(TrainingRunner& runner, std::int64_t micro_batches,
                                   Exchange& exchange);

// Throws if offloaded state of `ranks` ranks, `needed` bytes in all, is more than the `free` bytes
// of host memory of their machine.
void require_host_memory(std::int64_t needed, std::int64_t free, std::int64_t ranks,
                         int zero_stage);

}  // namespace llmc
