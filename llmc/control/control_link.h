// The connection of a rank's control thread to the store, which rank 0 has. Only that thread uses
// it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "llmc/comm/tcp_connection.h"
#include "llmc/control/rank_state.h"

namespace llmc {

using ControlClock = std::chrono::steady_clock;

class ControlLink {
 public:
  virtual ~ControlLink() = default;

  // Descriptors that can be read when there is something to do.
  virtual std::vector<int> descriptors() const = 0;

  // The messages for this rank that have arrived since the last call.
  virtual std::vector<tcp::Message> receive(ControlClock::time_point now) = 0;

  // Sends a message of this rank.
  virtual void send(const tcp::Message& message) = 0;
};

// The table of all ranks in a message.
std::string pack_table(const std::vector<SeenRank>& table);
std::vector<SeenRank> unpack_table(const std::string& packed);

}  // namespace llmc
