// The limits of a run's control threads, with their defaults.
#pragma once

namespace llmc {

struct ControlSettings {
  double heartbeat_timeout = 30;  // seconds
  double comm_timeout = 300;      // seconds
};

}  // namespace llmc
