// Progress of a long piece of work, printed to stderr: the fraction that is done and the estimated
// time left.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace llmc {

// Counts signs of progress of this process, in any unit: operations, bytes, rows. Ranks that wait
// for this one see by it that it still works.
class ProgressCount {
 public:
  static void add(std::int64_t count = 1) { count_.fetch_add(count, std::memory_order_relaxed); }
  static std::int64_t value() { return count_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::int64_t> count_{0};
};

// Decides when progress is shown: not in the first two seconds, then five times per second on a
// terminal, where a line is overwritten, and otherwise every five seconds.
class ProgressTimer {
 public:
  ProgressTimer() : start_(Clock::now()) {}

  // Whether progress must be shown now. Call it after every part of the work.
  bool due();

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Overwrites the last line on a terminal, and prints a new one elsewhere.
  static void show(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kFirst = 2.0;  // seconds

  Clock::time_point start_;
  bool shown_ = false;
  double last_ = 0;  // seconds after the start
};

// "NAME: 40% | ETA 12 s" after `seconds`, if `fraction` of the work is done.
std::string progress_text(const std::string& name, double fraction, double seconds);

// Work that consists of `total` parts of about equal cost, such as bytes or tokens.
class WorkProgress {
 public:
  WorkProgress(std::string name, std::int64_t total) : name_(std::move(name)), total_(total) {}
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // Shows that `done` parts in total are finished, if it is time to show something.
  void show(std::int64_t done);

  // Reports `count` more finished parts.
  void add(std::int64_t count) { show(done_ += count); }

 private:
  std::string name_;
  std::int64_t total_, done_ = 0;
  ProgressTimer timer_;
};

}  // namespace llmc
