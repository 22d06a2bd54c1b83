// The link of ranks above 0 to the store.
#pragma once

#include <memory>
#include <vector>

#include "llmc/control/control_link.h"

namespace llmc {

class StoreClient final : public ControlLink {
 public:
  StoreClient(std::shared_ptr<TcpHub> hub, int rank);

  std::vector<tcp::Message> receive(ControlClock::time_point now) override;
  void send(const tcp::Message& message) override { hub().send(message); }

 private:
  int rank_;
  bool has_ended_ = false;  // rank 0
};

}  // namespace llmc
