// Programmatic dependent launch on the host.
#pragma once

namespace llmc {

inline void wait_for_previous_launch() {}
inline void allow_next_launch() {}

}  // namespace llmc
