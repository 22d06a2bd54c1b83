// Ranks that find each other over TCP, without MPI: rank 0 listens on MASTER_PORT of MASTER_ADDR,
// and the other ranks connect to it. Rank 0 forwards messages between the others while it waits
// itself. It serves only to connect ranks; collectives need NCCL, or tcp_world.h.
//
// A rank that fails closes its connection without a goodbye. Rank 0 notices this when it waits or
// checks, and reports it to the others.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/poll_pause.h"
#include "llmc/comm/tcp_connection.h"
#include "llmc/comm/tcp_settings.h"

namespace llmc {

class TcpBootstrap final : public Bootstrap {
 public:
  // Returns when all ranks are connected; throws after the deadline.
  explicit TcpBootstrap(const TcpSettings& settings);

  // Rank 0 forwards messages until the others have ended.
  ~TcpBootstrap() override;

  const Places& places() const override { return places_; }

  std::vector<std::string> all_gather(const std::string& text) override;

  std::string broadcast(const std::string& name, const std::vector<int>& members,
                        std::string bytes) override;

  std::string address() const override { return address_; }

  void check() override;

  void abort(int) override;

 private:
  int rank() const { return settings_.rank; }
  std::string seconds_text() const;

  // Rank 0 sends to each rank directly, the others by rank 0.
  void send_text(int to, const std::string& text) {
    send(rank() == 0 ? to : 0, tcp::MessageKind::text, rank(), to, text);
  }
  // A rank that has ended gets nothing.
  void send(int peer, tcp::MessageKind kind, int from, int to, const std::string& text) {
    if (peers_[peer]) peers_[peer]->send({kind, from, to, text});
  }

  // The next text from this rank.
  std::string receive(int from, const std::string& error);

  // Polls all connections. `error` is reported after the deadline; rank 0 reports first, so that
  // all ranks have the same error.
  template <class Condition>
  void wait_until(const std::string& error, const Condition& condition) {
    const std::chrono::seconds margin(rank() == 0 ? 0 : 1);
    const auto end = std::chrono::steady_clock::now() + settings_.deadline + margin;
    for (PollPause pause;; pause.next()) {
      receive_all();
      if (condition()) return;
      if (std::chrono::steady_clock::now() >= end) report(error + " within " + seconds_text());
      if (!failure_.empty()) fail_because_of_peer(failure_);
    }
  }

  // Takes all messages that have arrived, and detects connections that are closed.
  void receive_all();

  // A message that arrived from a connected rank.
  void take(int peer, const tcp::Message& message);

  // Keeps the first error of the run; rank 0 also reports it to the others.
  void report(const std::string& reason);

  // Rank 0 waits until the others are connected.
  void accept_ranks();

  std::string missing_ranks() const;

  // Takes the connection of a rank of this run. A rank that does not fit is refused.
  void greet(std::unique_ptr<tcp::Connection>& arrival, std::string& refusal);

  // Tries until rank 0 answers: before it listens, another program may have the port.
  void connect();
  bool finds_rank_0(std::chrono::steady_clock::time_point end, std::string& error);

  TcpSettings settings_;
  int exceptions_ = std::uncaught_exceptions();          // when the object was made
  std::vector<std::unique_ptr<tcp::Connection>> peers_;  // by rank; ranks above 0 have only rank 0
  std::map<int, std::deque<std::string>> texts_;         // that arrived, by sender
  Places places_;
  std::string address_;
  std::string failure_;  // the first error of the run; empty: none
};

}  // namespace llmc
