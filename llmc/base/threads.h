// Independent pieces of work on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace llmc {

// Number of processors that this process may run on, which can be less than the machine has.
std::int64_t available_processors();

// Threads for the work of this process on the CPU: the number in the environment variable
// LLMC_HOST_THREADS, which is this rank's share if several run on a machine (rank_places.h);
// otherwise one per available processor.
std::int64_t cpu_threads();

// Calls work() in a thread of its own, and waits for it for at most this time. Returns whether it
// has ended; it continues otherwise, so the process should end soon. For the end of a process, if a
// disk may not answer. `work` must not throw.
bool run_for(std::chrono::seconds limit, std::function<void()> work);

// Calls work(0) .. work(count - 1), each once, on up to `threads` threads; returns when all are
// done. If calls throw, no further ones start, and the exception of the lowest index is rethrown,
// as in a loop. Indices are started in order, so a call that throws later has a higher index or was
// already running.
template <class Work>
void for_each_parallel(std::size_t count, std::int64_t threads, Work&& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t first_failure = count;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < first_failure) {
          first_failure = i;
          error = std::current_exception();
        }
        next = count;
      }
    }
  };
  std::vector<std::jthread> helpers;
  const auto num_threads =
      std::min(static_cast<std::size_t>(std::max<std::int64_t>(1, threads)), count);
  for (std::size_t i = 1; i < num_threads; ++i) helpers.emplace_back(run);
  run();
  helpers.clear();  // joins the threads
  if (error) std::rethrow_exception(error);
}

}  // namespace llmc
