// Progress of work measured in bytes, printed to stderr: how much is done and the estimated time
// left.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "llmc/base/terminal.h"

namespace llmc {

// On a terminal: one line that is overwritten. Otherwise: a new line every five seconds.
class ByteProgress {
 public:
  explicit ByteProgress(std::int64_t total)
      : terminal_(isatty(STDERR_FILENO) != 0),
        total_(total),
        start_(Clock::now()),
        shown_(start_) {}
  ~ByteProgress() {
    if (line_open_) std::fputc('\n', stderr);
  }
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // Shows that `done` bytes are done, unless the last output is too recent. `rest` is appended to
  // the line.
  void show(std::int64_t done, const std::string& rest) {
    const auto now = Clock::now();
    if (std::chrono::duration<double>(now - shown_).count() < (terminal_ ? 0.2 : 5.0)) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double bytes = static_cast<double>(done), all = static_cast<double>(total_);
    if (done <= 0) return;
    char text[128];
    std::snprintf(text, sizeof text, "%5.1f%% of %.1f MB | %.1f MB/s | ETA %s | ",
                  100 * bytes / all, all / 1e6, bytes / 1e6 / seconds,
                  time_text(seconds * (all - bytes) / bytes).c_str());
    const std::string line = text + rest;
    std::fputs((terminal_ ? live_line(line) : line + "\n").c_str(), stderr);
    line_open_ = terminal_;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  static std::string time_text(double seconds) {
    const auto s = static_cast<long long>(seconds + 0.5);
    char text[32];
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
  }

  bool terminal_;
  bool line_open_ = false;
  std::int64_t total_;
  Clock::time_point start_, shown_;
};

}  // namespace llmc
