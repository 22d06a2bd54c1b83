// --mesh auto for the ranks and devices of a run (plan/search/choose_mesh.h).
#pragma once

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"

namespace llmc {

// The flags with those of the layout that is chosen and printed, if --mesh auto was given or
// recorded; otherwise as they are. Rank 0 chooses; all ranks call this together.
Request with_mesh_of_run(const Request& request, const RunFacts& facts, Exchange& exchange);

}  // namespace llmc
