// Ranks that find each other over TCP, without MPI: rank 0 listens on MASTER_PORT of MASTER_ADDR,
// and the other ranks connect to it. It serves only to connect ranks; collectives need NCCL, or
// tcp_world.h. Rank 0 passes messages between the others on while it waits itself, or while its
// control thread uses the same connections.
//
// A rank that fails tells rank 0, or its connection ends. Rank 0 notices this when it waits or
// checks, and reports it to the others.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/poll_pause.h"
#include "llmc/comm/tcp_hub.h"
#include "llmc/comm/tcp_settings.h"

namespace llmc {

class TcpBootstrap final : public Bootstrap {
 public:
  // Returns when all ranks are connected; throws after the deadline.
  explicit TcpBootstrap(const TcpSettings& settings);

  // Rank 0 passes messages on until the others have ended.
  ~TcpBootstrap() override;

  const Places& places() const override { return places_; }

  std::vector<std::string> all_gather(const std::string& text) override;

  std::string broadcast(const std::string& name, const std::vector<int>& members,
                        std::string bytes) override;

  std::string address() const override { return hub_->address(); }

  std::shared_ptr<TcpHub> hub() const override { return hub_; }

  void check() override;

  void abort(int) override;

 private:
  int rank() const { return settings_.rank; }

  void send_text(int to, const std::string& text) {
    hub_->send({tcp::MessageKind::text, rank(), to, text});
  }

  // The next text from this rank.
  std::string receive(int from, const std::string& error);

  // `error` is reported after the deadline; rank 0 reports first, so that all ranks have the same
  // error.
  template <class Condition>
  void wait_until(const std::string& error, const Condition& condition) {
    const std::chrono::seconds margin(rank() == 0 ? 0 : 1);
    const auto end = std::chrono::steady_clock::now() + settings_.deadline + margin;
    for (PollPause pause;; pause.next()) {
      receive_all();
      if (condition()) return;
      if (std::chrono::steady_clock::now() >= end) {
        report(error + " within " + seconds_text(settings_.deadline));
      }
      if (!failure_.empty()) fail_because_of_peer(failure_);
    }
  }

  // Takes all messages that have arrived.
  void receive_all();
  void take(const tcp::Message& message);

  // Keeps the first error of the run; rank 0 also reports it to the others.
  void report(const std::string& reason);
  std::string failure_of(int rank) const;

  TcpSettings settings_;
  int exceptions_ = std::uncaught_exceptions();  // when the object was made
  std::shared_ptr<TcpHub> hub_;
  std::map<int, std::deque<std::string>> texts_;  // that arrived, by sender
  std::set<int> ended_;                           // ranks, without an error
  Places places_;
  std::string failure_;  // the first error of the run; empty: none
};

}  // namespace llmc
