#include "llmc/base/io_threads.h"

#include <utility>

namespace llmc {

IoThreads::IoThreads(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
}

IoThreads::~IoThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::future<void> IoThreads::submit(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
  }
  work_available_.notify_one();
  return done;
}

void IoThreads::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    work_available_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::packaged_task<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace llmc
