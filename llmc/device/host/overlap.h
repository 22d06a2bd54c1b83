// Overlapped launches on the host: launches run one after the other, and for TSan a thread of an
// overlapped launch is ordered with the launches before it only by its wait.
#pragma once

#include "llmc/device/host/block.h"

namespace llmc {

inline void wait_for_previous_launch() {
  host::Block::current()->wait_for_previous_launch();
}

// For TSan, every launch allows the next one from its start.
inline void allow_next_launch() {}

}  // namespace llmc
