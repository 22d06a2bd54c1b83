// Integer atomics of the host.
#pragma once

#include <cstdint>

#include "llmc/device/host/block.h"

namespace llmc {

// The counter belongs to earlier launches too, so an overlapped launch must have waited for them.
inline std::int32_t count_arrival(std::int32_t* counter,
                                  host::SourceLocation location = host::SourceLocation::current()) {
  host::Block::current()->require_wait({"count_arrival", location});
  return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
}

}  // namespace llmc
