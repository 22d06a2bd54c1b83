// --dry-run: the memory of each rank, and what it sends per step, without a run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/model/memory_plan.h"
#include "llmc/train/run/recorded_run.h"

namespace llmc {

// The memory that each rank of a run reserves. Nothing is allocated and no rank is started.
std::vector<std::vector<MemoryPlan::Segment>> planned_memory(const RunConfig& config);

// --dry-run: what the run would need.
void print_plan(const Request& request, RunFacts facts);

// --print-mesh: the groups that the flags and the resumed run imply. `started`: ranks of this run,
// which --ranks replaces.
void print_mesh(const Request& request, const std::optional<RecordedRun>& resumed,
                std::int64_t started);

}  // namespace llmc
