// Connects the ranks of a group directly with each other. Every rank listens on a port that the
// system chooses; the bootstrap distributes the ports, the addresses and a random key of the run.
// Of two ranks, the higher one connects. Both ends send a greeting with the key, the group and both
// ranks, and a connection that greets otherwise is closed: any program can reach a port.
//
// Each pair of ranks has a connection per group. One connection for all groups of a pair would need
// memory for messages of a group that is not received now, and one group's full connection would
// stop the others. Here each message goes from the socket to its place. The price is descriptors:
// 64 ranks need 63 for each group of all ranks, so a rank of the trainer has about 300 (1024 is the
// usual soft limit, which is raised to the hard limit).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/bootstrap.h"
#include "llmc/comm/tcp_connection.h"

namespace llmc {

namespace tcp {

// The first bytes in both directions of a connection.
struct Greeting {
  char magic[8] = {'l', 'l', 'm', 'c', 't', 'c', 'p', '1'};
  std::array<std::uint64_t, 2> key{};
  std::uint64_t group = 0;
  std::int32_t from = 0, to = 0;  // ranks of the run

  bool operator==(const Greeting&) const = default;
};

class Connector {
 public:
  // All ranks call this together. `deadline` of one group.
  Connector(Bootstrap& ranks, std::chrono::milliseconds deadline);

  // A socket to each of the members, ascending ranks of the run, and none to this rank itself. Each
  // member calls this, and calls for groups that share ranks are in the same order on these.
  std::vector<Socket> connect(const std::string& name, const std::vector<int>& members,
                              Bootstrap& ranks);

  int port() const;
  std::chrono::milliseconds deadline() const { return deadline_; }

 private:
  // A place at which a rank listens.
  struct Place {
    std::string machine;
    int port = 0;
    std::vector<std::string> addresses;  // the most likely one first
  };

  // A connection whose greeting has not arrived completely.
  struct Arrival {
    Socket socket;
    Greeting greeting;
    std::size_t size;  // bytes of it that arrived
    std::chrono::steady_clock::time_point end;
  };

  // A connection to a lower rank, which has not answered.
  struct Dial {
    std::size_t member;
    std::size_t attempt = 0;
    Socket socket = Socket();
    Greeting answer = {};
    std::size_t size = 0;  // bytes of it that arrived
  };

  void listen(bool is_one_machine);
  void accept();
  // Takes the connections that have greeted. Others, and silent ones, are closed.
  void greet_arrivals();
  // Whether the rank has answered. Tries the next address if the connection ended.
  bool answers(Dial& dial, const Greeting& own, std::string& error);
  // Waits a little for new connections and answers.
  void wait(const std::vector<Dial>& dials) const;

  std::uint64_t next_group(const std::string& name, const std::vector<int>& members);
  Greeting greeting_to(int other, std::uint64_t group) const;

  int rank_;
  std::chrono::milliseconds deadline_;
  Socket listener_;
  std::array<std::uint64_t, 2> key_{};
  std::vector<Place> places_;  // by rank
  std::vector<Arrival> arrivals_;
  std::map<std::pair<int, std::uint64_t>, Socket> greeted_;  // by rank and group
  std::map<std::string, int> num_groups_;                    // by name and members
};

}  // namespace tcp

}  // namespace llmc
