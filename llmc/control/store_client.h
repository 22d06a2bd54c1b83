// The connection of ranks above 0 to the store.
#pragma once

#include <string>
#include <vector>

#include "llmc/control/control_link.h"

namespace llmc {

class StoreClient final : public ControlLink {
 public:
  // Connects to the first of these addresses that knows the key. Throws after the deadline.
  StoreClient(int rank, int ranks, const std::vector<std::string>& addresses, int port,
              const std::string& key, std::chrono::seconds deadline);

  std::vector<int> descriptors() const override;
  std::vector<tcp::Message> receive(ControlClock::time_point now) override;
  void send(const tcp::Message& message) override { connection_.send(message); }

 private:
  int rank_;
  tcp::Connection connection_{tcp::Socket()};
  bool has_ended_ = false;  // rank 0 has sent a goodbye, or its loss is reported
};

}  // namespace llmc
