// The OS threads of the host executor.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/device/host/sanitizer.h"

namespace llmc::host {

// OS threads that share the pieces of one job at a time; the calling thread also works. Pieces are
// handed out one by one, in order. The environment variable LLMC_HOST_THREADS sets the number of
// threads; the default is one per core.
class WorkerPool {
 public:
  static WorkerPool& instance() {
    static WorkerPool pool(num_threads_from_environment());
    return pool;
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls piece(i) for i in [0, count), on any thread in any order; returns when all are done.
  // Rethrows the first exception; pieces not yet started are then skipped.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& piece) {
    if (workers_.empty() || count <= 1) {
      for (std::int64_t i = 0; i < count; ++i) piece(i);
      return;
    }
    std::lock_guard<std::mutex> one_job(job_mutex_);
    open_job(count, piece);
    work();
    close_job();
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

  // TSan already treats every CUDA thread as a separate thread, so one OS thread is enough.
  static int num_threads_from_environment() {
    if (kThreadSanitizer) return 1;
    const char* value = std::getenv("LLMC_HOST_THREADS");
    const int threads = value != nullptr ? std::atoi(value) : 0;
    return threads > 0 ? threads
                       : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  void open_job(std::int64_t count, const std::function<void(std::int64_t)>& piece) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      piece_ = &piece;
      count_ = count;
      next_.store(0);
      error_ = nullptr;
      open_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
  }

  // Waits for the workers that joined the job. A worker that wakes up later finds the job closed,
  // so a short job does not wait for sleeping workers.
  void close_job() {
    std::unique_lock<std::mutex> lock(mutex_);
    open_ = false;
    lock.unlock();
    poll([&] { return num_busy_.load() == 0; });
    lock.lock();
    done_.wait(lock, [&] { return num_busy_.load() == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void serve() {
    std::uint64_t last_generation = 0;
    for (;;) {
      poll([&] { return generation_.load() != last_generation; });
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != last_generation; });
      last_generation = generation_.load();
      if (stopping_) return;
      if (!open_) continue;
      ++num_busy_;
      lock.unlock();
      work();
      lock.lock();
      if (--num_busy_ == 0) done_.notify_one();
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

  // Waits until `done` or for some 100 microseconds: jobs follow each other within microseconds,
  // and to sleep and wake up takes longer.
  template <class Done>
  static void poll(const Done& done) {
    constexpr int kPolls = 4000;
    for (int i = 0; i < kPolls && !done(); ++i) pause();
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
  std::atomic<int> num_busy_{0};
  bool open_ = false, stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace llmc::host
