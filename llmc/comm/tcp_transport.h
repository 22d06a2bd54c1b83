// A transport of a group whose ranks are connected by TCP, one connection per pair.
//
// exchange() polls all its connections, so no order of calls makes ranks wait for each other: each
// rank sends and receives as fast as any of the others allows. It receives each message directly
// into its destination.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/comm/tcp_links.h"
#include "llmc/comm/transport.h"

namespace llmc {

namespace tcp {

class TcpTransport final : public Transport {
 public:
  // How a rank waits for others.
  struct Waits {
    std::chrono::milliseconds deadline;  // without any progress
    std::function<void()> check;         // throws if a rank of the run is known to have failed
  };

  // `peers` has the connection to each rank of the group, and null for this one, `rank`, which is
  // `run_rank` among all ranks. `links` must outlive the transport.
  TcpTransport(std::string name, int rank, int run_rank, std::vector<std::shared_ptr<Link>> peers,
               Links& links, Waits waits);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }

  void exchange(const CommCall& call, std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override;

  void post(const CommCall& call, const Outgoing& message) override;

 private:
  // A message of an exchange that is not complete.
  struct Part {
    Link* link;
    std::int64_t sent = 0;  // number of the message; 0: it is received
    const Incoming* receive = nullptr;
    bool is_ready = true;  // perhaps bytes can be moved
  };

  Link& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }

  // Moves what can be moved now. Returns whether the message is complete.
  bool advance(const CommCall& call, const Part& part);

  // Waits until a part is ready.
  void wait(const CommCall& call, std::vector<Part>& parts);

  void check_ranks();
  [[noreturn]] void fail_because_of(const CommCall& call, const Link& link);
  std::string place(const CommCall& call) const;

  std::string name_;
  int rank_, run_rank_;
  std::vector<std::shared_ptr<Link>> peers_;
  Links& links_;
  Waits waits_;
  std::chrono::steady_clock::time_point next_check_{}, last_progress_{};
  int exceptions_ = std::uncaught_exceptions();  // when the transport was made
};

}  // namespace tcp

}  // namespace llmc
