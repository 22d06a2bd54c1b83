// A control thread's part of the connections to rank 0, which has the store. Only that thread uses
// it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/tcp_hub.h"
#include "llmc/control/rank_state.h"

namespace llmc {

using ControlClock = std::chrono::steady_clock;

class ControlLink {
 public:
  explicit ControlLink(std::shared_ptr<TcpHub> hub) : hub_(std::move(hub)) {}
  virtual ~ControlLink() = default;

  // Descriptors that can be read when there is something to do.
  std::vector<int> descriptors() const { return hub_->descriptors(); }

  // The messages for this rank that have arrived since the last call.
  virtual std::vector<tcp::Message> receive(ControlClock::time_point now) = 0;

  // Sends a message of this rank.
  virtual void send(const tcp::Message& message) = 0;

 protected:
  TcpHub& hub() { return *hub_; }

 private:
  std::shared_ptr<TcpHub> hub_;
};

// The table of all ranks in a message.
std::string pack_table(const std::vector<SeenRank>& table);
std::vector<SeenRank> unpack_table(const std::string& packed);

}  // namespace llmc
