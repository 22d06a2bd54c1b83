// Items that another thread prepares before they are used.
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

// next() returns make(0), make(1), ... in this order. One thread makes them while earlier ones are
// used, at most `depth` ahead. Everything that `make` reads must outlive this object.
template <class Item>
class ReadAhead {
 public:
  explicit ReadAhead(std::function<Item(std::int64_t)> make, std::size_t depth = 4)
      : make_(std::move(make)), depth_(depth), thread_([this] { run(); }) {}

  // Waits for the call of `make` in progress, if any.
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    space_available_.notify_one();
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Waits for the next item and returns it. If `make` threw instead, this call and all later ones
  // throw its exception.
  Item next() {
    std::unique_lock lock(mutex_);
    item_available_.wait(lock, [&] { return !ready_items_.empty() || error_; });
    if (ready_items_.empty()) std::rethrow_exception(error_);
    Item item = std::move(ready_items_.front());
    ready_items_.pop_front();
    lock.unlock();
    space_available_.notify_one();
    return item;
  }

 private:
  void run() {
    try {
      for (std::int64_t n = 0; wait_for_space(); ++n) {
        Item item = make_(n);
        {
          const std::lock_guard lock(mutex_);
          ready_items_.push_back(std::move(item));
        }
        item_available_.notify_one();
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      item_available_.notify_one();
    }
  }

  // Returns false if the thread must end.
  bool wait_for_space() {
    std::unique_lock lock(mutex_);
    space_available_.wait(lock, [&] { return stopped_ || ready_items_.size() < depth_; });
    return !stopped_;
  }

  std::function<Item(std::int64_t)> make_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable item_available_, space_available_;
  std::deque<Item> ready_items_;
  std::exception_ptr error_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace llmc
