// Work that another thread does ahead of its use.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace llmc {

// make(0), make(1), ... in this order, made by one thread while earlier ones are used, `depth`
// ahead at most. What `make` reads must outlive this.
template <class Item>
class ReadAhead {
 public:
  explicit ReadAhead(std::function<Item(std::int64_t)> make, std::size_t depth = 4)
      : make_(std::move(make)), depth_(depth), thread_([this] { run(); }) {}

  // Waits for the item that is being made, if there is one.
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_one();
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The next item, as soon as it is made. What `make` threw is thrown here in its place, at this
  // call and all that follow.
  Item next() {
    std::unique_lock lock(mutex_);
    some_.wait(lock, [&] { return !made_.empty() || error_; });
    if (made_.empty()) std::rethrow_exception(error_);
    Item item = std::move(made_.front());
    made_.pop_front();
    lock.unlock();
    room_.notify_one();
    return item;
  }

 private:
  void run() {
    try {
      for (std::int64_t n = 0; wait_for_room(); ++n) {
        Item item = make_(n);
        {
          const std::lock_guard lock(mutex_);
          made_.push_back(std::move(item));
        }
        some_.notify_one();
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      some_.notify_one();
    }
  }

  // False: there is nothing more to do.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stopped_ || made_.size() < depth_; });
    return !stopped_;
  }

  std::function<Item(std::int64_t)> make_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable some_, room_;
  std::deque<Item> made_;
  std::exception_ptr error_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace llmc
