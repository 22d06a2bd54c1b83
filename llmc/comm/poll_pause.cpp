#include "llmc/comm/poll_pause.h"

#include <algorithm>
#include <thread>

namespace llmc {

void PollPause::next() {
  constexpr int kPolls = 200;
  constexpr std::chrono::microseconds kLast{500};
  if (polls_ < kPolls) {
    ++polls_;
    return std::this_thread::yield();
  }
  std::this_thread::sleep_for(pause_);
  pause_ = std::min(2 * pause_, kLast);
}

}  // namespace llmc
