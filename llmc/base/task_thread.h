// A thread that runs tasks in their order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace llmc {

class TaskThread {
 public:
  using Ticket = std::int64_t;  // number of a task, counted from 1

  // `start` is the first thing that the thread does. It inherits the signal mask of the caller.
  explicit TaskThread(std::function<void()> start);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Finishes all tasks.
  ~TaskThread();

  // After a task that throws, all later ones are dropped.
  Ticket submit(std::function<void()> task);

  // Waits until the task is done; 0 is always done. If it, or one before it, has thrown, throws
  // that exception, each time that it is called.
  void wait(Ticket ticket);

  // Waits until nothing is left to do; throws nothing.
  void settle();

 private:
  void run(const std::function<void()>& start);

  std::mutex mutex_;
  std::condition_variable submitted_, done_;
  std::deque<std::function<void()>> tasks_;
  Ticket last_submitted_ = 0, last_done_ = 0, failed_ = 0;  // failed_: 0 means none
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llmc
