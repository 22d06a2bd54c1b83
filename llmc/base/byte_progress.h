// Progress of work measured in bytes, printed to stderr: how much is done and the estimated time
// left.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/base/work_progress.h"

namespace llmc {

// Shown as often as ProgressTimer demands.
class ByteProgress {
 public:
  explicit ByteProgress(std::int64_t total) : total_(total) {}
  ~ByteProgress() { Notice::end_live_line(); }
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // Shows that `bytes` of the total are processed, unless the last output is too recent. `suffix`
  // is appended to the line.
  void show(std::int64_t bytes, const std::string& suffix);

  double seconds() const { return timer_.seconds(); }

 private:
  std::int64_t total_;
  ProgressTimer timer_;
};

}  // namespace llmc
