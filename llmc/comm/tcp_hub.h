// The connections of the ranks of a run: each rank above 0 has one to rank 0, which passes texts
// between the others on. The bootstrap (tcp_bootstrap.h) and the control threads (llmc/control)
// share it, from different threads.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/tcp_connection.h"

namespace llmc {

// How the ranks reach rank 0.
struct HubSettings {
  int rank = 0, ranks = 1;
  std::vector<std::string> addresses;       // of rank 0, names or numbers
  int port = 0;                             // of rank 0
  std::string key;                          // of the run; rank 0 does not answer without it
  std::chrono::milliseconds deadline = {};  // until all ranks are connected
  std::string place, hint;                  // of rank 0's port, for errors
};

class TcpHub {
 public:
  enum User { bootstrap, control, kNumUsers };

  // Returns when this rank is connected, at rank 0 when all are; throws after the deadline.
  // `listener` of rank 0, which is closed afterwards.
  explicit TcpHub(HubSettings settings, tcp::Socket listener = tcp::Socket());
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;

  // Sends a message to rank `to`, which is another one. If its connection has ended, it is lost.
  void send(const tcp::Message& message);

  // The messages for a user of this rank that have arrived since its last call, in order; does not
  // wait. The last one of a connection is `closed`.
  std::vector<tcp::Message> receive(User user);

  // Descriptors that can be read when something has arrived. They stay valid.
  std::vector<int> descriptors() const;

  // The address of this rank's end of a connection to another machine; empty: there is none.
  std::string address() const;

 private:
  using Clock = std::chrono::steady_clock;
  // A connection that has not greeted yet.
  struct Arrival {
    tcp::Connection connection;
    Clock::time_point end;
  };

  void accept_ranks(const tcp::Socket& listener);
  std::string missing_ranks() const;
  // Whether nothing is to be expected of it any more: it is a rank, is refused, or has ended.
  bool greet(Arrival& arrival, std::string& refusal);
  // Why rank 0 refuses a rank of this run; empty: it does not.
  std::string refusal_of(const tcp::Message& hello) const;

  // Tries until rank 0 answers: before it listens, another program may have the port.
  void connect();
  bool finds_rank_0(const std::string& address, Clock::time_point end, std::string& error);

  // The mutex is locked in these.
  void read_all();
  void take(int peer, tcp::Message message);
  void deliver(const tcp::Message& message);

  HubSettings settings_;
  mutable std::mutex mutex_;
  struct Peer {
    tcp::Connection connection;
    bool is_closed = false;  // the users have a message about it
  };
  std::vector<std::optional<Peer>> peers_;  // by rank; ranks above 0 have only rank 0
  std::array<std::vector<tcp::Message>, kNumUsers> arrived_;
};

}  // namespace llmc
