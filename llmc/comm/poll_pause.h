// Pauses between polls of something that another rank completes, without a busy core.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace llmc {

// A few microseconds of polls without sleep, then sleeps that become longer.
class PollPause {
 public:
  void next() {
    constexpr int kPolls = 200;
    constexpr std::chrono::microseconds kLast{500};
    if (polls_ < kPolls) {
      ++polls_;
      return std::this_thread::yield();
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kLast);
  }

 private:
  int polls_ = 0;
  std::chrono::microseconds pause_{10};
};

}  // namespace llmc
