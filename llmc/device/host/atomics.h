// Integer atomics of the host.
#pragma once

#include <cstdint>

namespace llmc {

inline std::int32_t count_arrival(std::int32_t* counter) {
  return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
}

}  // namespace llmc
