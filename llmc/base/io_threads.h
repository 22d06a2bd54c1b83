// Threads that run blocking transfers, several at a time, while their caller prepares or uses
// others.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace llmc {

class IoThreads {
 public:
  explicit IoThreads(std::size_t count = 4);
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;
  // Runs the submitted work to its end.
  ~IoThreads();

  // Runs work() on one of the threads. The future has its exception, if it threw.
  std::future<void> submit(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::deque<std::packaged_task<void()>> waiting_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace llmc
