#include "llmc/base/threads.h"

#include <sched.h>

namespace llmc {

std::int64_t available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace llmc
