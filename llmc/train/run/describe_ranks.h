// The lines that a run with several ranks prints about its machines and its mesh.
#pragma once

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"

namespace llmc {

// Rank 0 prints the machines (comm/machines.h) and the mesh; nothing with one rank. All ranks call
// this together.
void describe_ranks(const RunConfig& run, Exchange& exchange);

}  // namespace llmc
