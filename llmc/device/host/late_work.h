// The work of a stream in the mode of guard.h: it waits in a queue until the host waits for the
// stream, for an event of it, or for the device. Results that the host reads earlier are missing,
// and pinned memory that it changes earlier is copied as changed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace llmc {

class Stream;

namespace host {

class LateWork;

// A point of a queue, which an event has recorded.
class LatePoint {
 public:
  LatePoint(std::shared_ptr<LateWork> work, std::int64_t position)
      : work_(std::move(work)), position_(position) {}

  // Runs the queue up to here. Throws what its work has thrown.
  void wait() const;
  // When the queue reached this point. Throws an Error before that.
  std::chrono::steady_clock::time_point time() const;

 private:
  friend class LateWork;
  std::shared_ptr<LateWork> work_;
  std::int64_t position_;  // number of parts before and at this point
  std::chrono::steady_clock::time_point time_{};
};

// Thread-safe: another thread may wait for an event of the stream while its own one submits.
class LateWork : public std::enable_shared_from_this<LateWork> {
 public:
  using Part = std::function<void(Stream&)>;

  // The work of a stream that the calling thread creates.
  static std::shared_ptr<LateWork> create();
  ~LateWork();

  void submit(Part part);
  std::shared_ptr<LatePoint> mark();
  bool is_done();

  // Run all parts so far, in the calling thread. An error discards the rest, and the next wait()
  // throws it.
  void run();
  void wait();
  // Runs the work of all streams that the calling thread has created, as freeing memory does on a
  // GPU. Streams of other threads belong to other ranks.
  static void run_all();

 private:
  friend class LatePoint;
  LateWork();

  bool is_running() const { return runner_ != std::thread::id(); }
  std::int64_t submitted() const;  // parts
  void run_until(std::int64_t position);
  void throw_error();

  const std::thread::id creator_ = std::this_thread::get_id();
  const std::unique_ptr<Stream> stream_;  // runs parts immediately
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> parts_;
  std::int64_t executed_ = 0;
  std::thread::id runner_;  // the thread that runs a part, if one does
  std::exception_ptr error_;
};

}  // namespace host

}  // namespace llmc
