// --dry-run: the memory of each rank, and what it sends per step, without a run.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/nn/memory_plan.h"

namespace llmc {

// The memory that each rank of a run reserves. Nothing is allocated and no rank is started.
std::vector<std::vector<MemoryPlan::Segment>> planned_memory(const RunConfig& config);

// --dry-run: what the run would need. With --gpu-memory, throws an Error with settings that fit if
// a rank needs more than that without the reserve of default_batch.h.
void print_plan(const Request& request, RunFacts facts);

// --print-mesh: the groups that the flags imply. `resumed`: the settings of the run that --resume
// continues. `started`: ranks of this run, which --ranks replaces.
void print_mesh(const Request& request, const Request& resumed, std::int64_t started);

}  // namespace llmc
