// The host executor: spreads the blocks of a launch over OS threads.
#pragma once

#include <cfenv>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <execinfo.h>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <atomic>

#include "llmc/device/host/block.h"
#include "llmc/device/math.h"

namespace llmc::host {

// With TRAP_UNINITIALISED=1 in the environment the first arithmetic on fresh memory, which holds a
// signalling NaN, raises SIGFPE; the handler prints who did it and the call stack, and stops.
class UninitialisedTrap {
 public:
  static bool wanted() {
    static const bool wanted = [] {
      const char* value = std::getenv("TRAP_UNINITIALISED");
      return value != nullptr && std::string(value) == "1";
    }();
    return wanted;
  }

  UninitialisedTrap() {
    if (!wanted()) return;
    std::signal(SIGFPE, &UninitialisedTrap::report);
    feclearexcept(FE_INVALID);
    feenableexcept(FE_INVALID);
  }
  ~UninitialisedTrap() {
    if (wanted()) fedisableexcept(FE_INVALID);
  }

 private:
  static void report(int) {
    std::string text = "uninitialised read: arithmetic on memory that nothing has written";
    if (Block::thread() != nullptr) {
      const Coordinates at = Block::current()->place();
      text += ", thread " + std::to_string(Block::thread()->index) + " of block (" +
              std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
    }
    text += "\n";
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(1);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_print_stack_trace();
#else
    void* frames[32];
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
#endif
    _exit(1);
  }
};

// OS threads that share the pieces of one job at a time; the caller works along. One job's pieces
// are handed out in order, one by one.
class WorkerPool {
 public:
  static WorkerPool& instance() {
    static WorkerPool pool(wanted_threads());
    return pool;
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // piece(i) for i in [0, count), on any thread in any order; returns when all are done. The first
  // exception is thrown again here.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& piece) {
    if (count <= 0) return;
    if (workers_.empty() || count == 1) {
      for (std::int64_t i = 0; i < count; ++i) piece(i);
      return;
    }
    std::lock_guard<std::mutex> one_job(job_mutex_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      piece_ = &piece;
      count_ = count;
      next_.store(0);
      busy_ = static_cast<int>(workers_.size());
      error_ = nullptr;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  explicit WorkerPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  }
  ~WorkerPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  // The race checker sees every CUDA thread as a thread of its own already: one OS thread will do.
  static int wanted_threads() {
    if (kThreadSanitizer) return 1;
    const char* value = std::getenv("LLMC_HOST_THREADS");
    const int wanted = value != nullptr ? std::atoi(value) : 0;
    return wanted > 0 ? wanted : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  void serve() {
    std::uint64_t seen = 0;
    for (;;) {
      // Launches follow each other within microseconds: look for a while before going to sleep.
      constexpr int kLooks = 4000;
      for (int look = 0; look < kLooks && generation_.load() == seen; ++look) pause();
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load() != seen; });
        seen = generation_.load();
        if (stopping_) return;
      }
      work();
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  void work() {
    try {
      for (std::int64_t i; (i = next_.fetch_add(1)) < count_;) (*piece_)(i);
    } catch (...) {
      next_.store(count_);
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::vector<std::thread> workers_;
  std::mutex job_mutex_, mutex_;
  std::condition_variable wake_, done_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> next_{0};
  std::int64_t count_ = 0;
  const std::function<void(std::int64_t)>* piece_ = nullptr;
  int busy_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
};

inline Block& block_of_this_thread() {
  static thread_local const std::unique_ptr<Block> block = std::make_unique<Block>();
  return *block;
}

// Runs kernel() once for every thread of every block.
inline void run_grid(const std::function<void()>& kernel, Coordinates grid, int block_threads,
                     std::size_t shared_bytes) {
  const std::int64_t blocks = grid.x * grid.y * grid.z;
  // Blocks of little work are handed out in bundles.
  const std::int64_t bundle =
      std::max<std::int64_t>(1, std::min<std::int64_t>(16, blocks / (8 * WorkerPool::instance().threads())));
  WorkerPool::instance().run(ceil_div(blocks, bundle), [&](std::int64_t piece) {
    Block& block = block_of_this_thread();
    UninitialisedTrap trap;
    for (std::int64_t i = piece * bundle; i < std::min(blocks, (piece + 1) * bundle); ++i) {
      block.run(kernel, grid, {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)},
                block_threads, shared_bytes);
    }
  });
  block_of_this_thread().join();
}

}  // namespace llmc::host
