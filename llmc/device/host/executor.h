// The host executor: spreads the blocks of a launch over OS threads.
#pragma once

#include "llmc/device/host/block.h"
#include "llmc/device/host/block_thread.h"

namespace llmc {

namespace host {

// Runs the kernel once for every thread of every block.
void run_grid(const Launch& launch);

// The same for TSan: runs all blocks in `block`, which belongs to the stream (StreamContext).
void run_grid_in(Block& block, const Launch& launch);

}  // namespace host

}  // namespace llmc
