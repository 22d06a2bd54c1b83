#include "llmc/base/threads.h"

#include <sched.h>

#include <cstdlib>

namespace llmc {

std::int64_t available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1u, std::thread::hardware_concurrency());
}

std::int64_t cpu_threads() {
  const char* value = std::getenv("LLMC_HOST_THREADS");
  const int threads = value != nullptr ? std::atoi(value) : 0;
  return threads > 0 ? threads : available_processors();
}

}  // namespace llmc
