// The machines of the ranks, and the lines that a run with several ranks prints about them and its
// mesh.
#pragma once

#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/comm/machines.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"

namespace llmc {

// The places of all ranks, in their order. All ranks call this together.
std::vector<RankPlace> rank_places(Exchange& exchange);

// Rank 0 prints the machines (comm/machines.h) and the mesh; nothing with one rank. All ranks call
// this together.
void describe_ranks(const RunConfig& run, Exchange& exchange);

}  // namespace llmc
