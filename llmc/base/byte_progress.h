// Progress of work measured in bytes, printed to stderr: how much is done and the estimated time
// left.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "llmc/base/notice.h"

namespace llmc {

// On a terminal: one line that is overwritten. Otherwise: a new line every five seconds.
class ByteProgress {
 public:
  explicit ByteProgress(std::int64_t total)
      : terminal_(Notice::terminal()), total_(total), start_(Clock::now()), last_output_(start_) {}
  ~ByteProgress() { Notice::end_live_line(); }
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // Shows that `bytes` of the total are processed, unless the last output is too recent. `suffix`
  // is appended to the line.
  void show(std::int64_t bytes, const std::string& suffix) {
    const auto now = Clock::now();
    if (std::chrono::duration<double>(now - last_output_).count() < (terminal_ ? 0.2 : 5.0)) return;
    last_output_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double processed = static_cast<double>(bytes), total = static_cast<double>(total_);
    if (bytes <= 0) return;
    char text[128];
    std::snprintf(text, sizeof text, "%5.1f%% of %.1f MB | %.1f MB/s | ETA %s | ",
                  100 * processed / total, total / 1e6, processed / 1e6 / seconds,
                  time_text(seconds * (total - processed) / processed).c_str());
    const std::string line = text + suffix;
    terminal_ ? Notice::show_live(line) : Notice::print(line);
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
  std::int64_t total_;
  Clock::time_point start_, last_output_;
};

}  // namespace llmc
