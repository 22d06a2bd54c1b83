// Pauses between polls of something that another rank completes, without a busy core.
#pragma once

#include <chrono>

namespace llmc {

// A few microseconds of polls without sleep, then sleeps that become longer.
class PollPause {
 public:
  void next();

 private:
  int polls_ = 0;
  std::chrono::microseconds pause_{10};
};

}  // namespace llmc
