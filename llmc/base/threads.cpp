#include "llmc/base/threads.h"

#include <sched.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

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

bool run_for(std::chrono::seconds limit, std::function<void()> work) {
  const auto done = std::make_shared<std::promise<void>>();
  try {
    std::thread([done, work = std::move(work)] {
      work();
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no thread is left
    return false;
  }
  return done->get_future().wait_for(limit) == std::future_status::ready;
}

}  // namespace llmc
