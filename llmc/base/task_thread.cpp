#include "llmc/base/task_thread.h"

#include <utility>

namespace llmc {

TaskThread::TaskThread(std::function<void()> start)
    : thread_([this, start = std::move(start)] { run(start); }) {}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

TaskThread::Ticket TaskThread::submit(std::function<void()> task) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ticket = ++last_submitted_;
  }
  submitted_.notify_one();
  return ticket;
}

void TaskThread::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return last_done_ >= ticket; });
  if (error_ && failed_ <= ticket) std::rethrow_exception(error_);
}

void TaskThread::settle() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return last_done_ == last_submitted_; });
}

void TaskThread::run(const std::function<void()>& start) {
  start();
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool is_dropped = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!is_dropped) task();
    } catch (...) {
      error = std::current_exception();
    }
    task = nullptr;  // what it holds is released before it counts as done
    lock.lock();
    ++last_done_;
    if (error) {
      error_ = error;
      failed_ = last_done_;
    }
    done_.notify_all();
  }
}

}  // namespace llmc
