// Ranks as processes that TCP connects, without a library. Collectives go through host memory
// (staged_communicator.h) and add in ascending order of ranks, so they have the bits of MPI. Any
// bootstrap may start it; it only distributes addresses and reports failures.
//
//   tcp_connection.h   sockets
//   tcp_connector.h    connects the ranks of a group
//   tcp_link.h         messages over one connection
//   tcp_links.h        all connections, and the thread that sends posted messages
//   tcp_transport.h    exchange() and post() of a group
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/staged_communicator.h"
#include "llmc/comm/tcp_connector.h"
#include "llmc/comm/tcp_links.h"
#include "llmc/comm/tcp_transport.h"
#include "llmc/comm/world.h"

namespace llmc {

class TcpWorld final : public World {
 public:
  // All ranks call this together. If this throws, the caller still has the bootstrap.
  explicit TcpWorld(std::unique_ptr<Bootstrap>& bootstrap, const WaitLimits& limits = {})
      : World(bootstrap->places()),
        limits_(limits),
        connector_(*bootstrap, limits.deadline),
        links_(std::make_unique<tcp::Links>()),
        bootstrap_(std::move(bootstrap)) {}

  // Waits until posted messages are sent, because their receivers may need them. After an error,
  // the receivers may never come.
  ~TcpWorld() override {
    if (is_aborted_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      if (!links_->finish(connector_.deadline(), [this] { bootstrap_->check(); }))
        Notice::warn("a rank ended before its last messages were received");
    } catch (const std::exception& error) {
      Notice::warn(error.what());
    }
  }

  void abort(int exit_code) override {
    is_aborted_ = true;
    links_->shut_down();
    bootstrap_->abort(exit_code);
  }

  // On which this rank accepts the connections of groups.
  int port() const { return connector_.port(); }

 private:
  std::unique_ptr<Communicator> make_group(const std::string& name,
                                           const std::vector<int>& members) override {
    std::vector<tcp::Socket> sockets = connector_.connect(name, members, *bootstrap_);
    std::vector<std::shared_ptr<tcp::Link>> peers;
    for (std::size_t i = 0; i < members.size(); ++i) {
      peers.push_back(members[i] == rank() ? nullptr
                                           : links_->add(members[i], std::move(sockets[i])));
    }
    return std::make_unique<StagedCommunicator>(
        name, std::make_unique<tcp::TcpTransport>(
                  name, place_in(members), rank(), std::move(peers), *links_,
                  tcp::TcpTransport::Waits{limits_.of_call(), [this] { bootstrap_->check(); }}));
  }

  int exceptions_ = std::uncaught_exceptions();  // when the world was made
  bool is_aborted_ = false;
  WaitLimits limits_;
  tcp::Connector connector_;
  std::unique_ptr<tcp::Links> links_;
  std::unique_ptr<Bootstrap> bootstrap_;
};

}  // namespace llmc
