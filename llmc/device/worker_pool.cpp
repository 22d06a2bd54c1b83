#include "llmc/device/worker_pool.h"

#include <algorithm>
#include <utility>

namespace llmc {

void WorkerPool::run(std::int64_t count, const std::function<void(std::int64_t)>& piece) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) piece(i);
    return;
  }
  std::lock_guard<std::mutex> one_job(job_mutex_);
  open_job(count, piece);
  work();
  close_job();
}

WorkerPool::WorkerPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void WorkerPool::open_job(std::int64_t count, const std::function<void(std::int64_t)>& piece) {
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

void WorkerPool::close_job() {
  std::unique_lock<std::mutex> lock(mutex_);
  open_ = false;
  lock.unlock();
  poll([&] { return num_busy_.load() == 0; });
  lock.lock();
  done_.wait(lock, [&] { return num_busy_.load() == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::serve() {
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

void WorkerPool::work() {
  try {
    for (std::int64_t i; (i = next_.fetch_add(1)) < count_;) (*piece_)(i);
  } catch (...) {
    next_.store(count_);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void WorkerPool::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace llmc
