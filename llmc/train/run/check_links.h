// --check-links: measures the devices and the links of a run before its first step.
#pragma once

#include <functional>

#include "llmc/comm/exchange.h"
#include "llmc/comm/world.h"
#include "llmc/train/run/link_report.h"

namespace llmc {

// Measures the matrix products of each rank, by measured_flops(), then the all-reduce of each pair
// of ranks and of all ranks. Ranks that share a device measure one after the other. So do pairs, up
// to 16 ranks; with more, pairs that share no rank measure at the same time. All ranks call this
// together; the report is complete on each.
LinkReport check_links(World& world, Exchange& exchange,
                       const std::function<double()>& measured_flops);

// The all-reduce of one number and that of a large operand, by the ranks of the group together.
LinkSpeed measure_all_reduce(Communicator& group, Stream& stream);

// The pairs of `ranks` ranks in rounds: each pair occurs once, and no rank occurs twice in a round.
std::vector<std::vector<LinkSpeed>> pair_rounds(int ranks);

}  // namespace llmc
