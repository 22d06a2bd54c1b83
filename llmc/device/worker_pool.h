// A pool of OS threads for work in many pieces.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace llmc {

// OS threads that share the pieces of one job at a time; the calling thread also works. Pieces are
// handed out one by one, in order.
class WorkerPool {
 public:
  // A pool of `threads` threads, of which the calling thread of each job is one.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls piece(i) for i in [0, count), on any thread in any order; returns when all are done.
  // Rethrows the first exception; pieces not yet started are then skipped.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& piece);

 private:
  void open_job(std::int64_t count, const std::function<void(std::int64_t)>& piece);

  // Waits for the workers that joined the job. A worker that wakes up later finds the job closed,
  // so a short job does not wait for sleeping workers.
  void close_job();

  void serve();

  void work();

  // Waits until `done` or for some 100 microseconds: jobs follow each other within microseconds,
  // and to sleep and wake up takes longer.
  template <class Done>
  static void poll(const Done& done) {
    constexpr int kPolls = 4000;
    for (int i = 0; i < kPolls && !done(); ++i) pause();
  }

  static void pause();

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

}  // namespace llmc
