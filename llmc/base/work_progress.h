// Progress of a long piece of work, printed to stderr: the fraction that is done and the estimated
// time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"

namespace llmc {

// Decides when progress is shown: not in the first two seconds, then five times per second on a
// terminal, where a line is overwritten, and otherwise every five seconds.
class ProgressTimer {
 public:
  ProgressTimer() : start_(Clock::now()) {}

  // Whether progress must be shown now. Call it after every part of the work.
  bool due() {
    const double time = seconds();
    if (time < kFirst || (shown_ && time - last_ < (Notice::terminal() ? 0.2 : 5.0))) return false;
    shown_ = true;
    last_ = time;
    return true;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Overwrites the last line on a terminal, and prints a new one elsewhere.
  static void show(const std::string& line) {
    Notice::terminal() ? Notice::show_live(line) : Notice::print(line);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kFirst = 2.0;  // seconds

  Clock::time_point start_;
  bool shown_ = false;
  double last_ = 0;  // seconds after the start
};

// "NAME: 40% | ETA 12 s" after `seconds`, if `fraction` of the work is done.
inline std::string progress_text(const std::string& name, double fraction, double seconds) {
  return name + number_text(": %.0f%% | ETA ", 100 * fraction) +
         duration_text(seconds * (1 / fraction - 1));
}

// Work that consists of `total` parts of about equal cost, such as bytes or tokens.
class WorkProgress {
 public:
  WorkProgress(std::string name, std::int64_t total) : name_(std::move(name)), total_(total) {}
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // Shows that `done` parts in total are finished, if it is time to show something.
  void show(std::int64_t done) {
    if (done <= 0 || !timer_.due()) return;
    const double fraction = static_cast<double>(done) / static_cast<double>(total_);
    ProgressTimer::show(progress_text(name_, fraction, timer_.seconds()));
  }

  // Reports `count` more finished parts.
  void add(std::int64_t count) { show(done_ += count); }

 private:
  std::string name_;
  std::int64_t total_, done_ = 0;
  ProgressTimer timer_;
};

}  // namespace llmc
