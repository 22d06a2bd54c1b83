// The limits of a run's control threads, with their defaults.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace llmc {

struct ControlSettings {
  double heartbeat_timeout = 30;  // seconds
  double comm_timeout = 300;      // seconds

  // Between two signs of life of a rank, and between two tables of all ranks. The progress of a
  // rank is known elsewhere up to two intervals later, which must be much less than the limits.
  std::chrono::milliseconds interval() const {
    const double tenth = std::min(heartbeat_timeout, comm_timeout) / 10;
    return std::chrono::milliseconds(std::lround(1000 * std::clamp(tenth, 0.2, 1.0)));
  }
};

}  // namespace llmc
