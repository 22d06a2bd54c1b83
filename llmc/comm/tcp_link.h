// One end of the TCP connection between two ranks of a group. A message is a header, which names
// its call and its size, and then its data. Messages leave in the order of post() and lend().
//
// Nothing waits: each function does what the connection allows now. Two threads may send, the one
// that communicates and the one that sends posted messages later (tcp_links.h); only the first one
// receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "llmc/comm/call.h"
#include "llmc/comm/tcp_connection.h"

namespace llmc {

namespace tcp {

// Integers are in the byte order of the machine: all of ours are little-endian.
struct LinkHeader {
  char magic[8] = {'l', 'l', 'm', 'c', 'm', 's', 'g', '1'};
  CommCall call;
  std::uint64_t bytes = 0;  // of the data
};

class Link {
 public:
  // `rank` of the run at the other end, for errors.
  Link(int rank, Socket socket);

  int rank() const { return rank_; }
  int descriptor() const { return socket_.descriptor(); }

  // Why the connection cannot be used any more; empty: it can.
  std::string failure() const;

  // Sends a message of `bytes` bytes, or copies what the connection does not take now.
  void post(const CommCall& call, const void* data, std::size_t bytes);

  // Appends a message that stays in the caller's memory until is_sent(), or until withdraw().
  // Returns its number.
  std::int64_t lend(const CommCall& call, const void* data, std::size_t bytes);
  bool is_sent(std::int64_t message) const;

  // After an error: drops this message if it is not sent. The connection cannot be used then.
  void withdraw(std::int64_t message);

  // Sends what the connection takes now.
  void flush();

  // Whether messages wait to be sent, and can be.
  bool has_unsent() const;

  // The header of the next message; null until it has arrived. Data that are not a message are a
  // failure.
  const LinkHeader* next();

  // Reads the data of that message as far as they have arrived. Returns whether they are complete;
  // then the next message begins. `data` has room for all of them.
  bool read(void* data);

  // Ends the connection in both directions. The other end reads what was sent, then the end.
  void shut_down();

 private:
  // A message that is not sent completely.
  struct Unsent {
    LinkHeader header;
    const void* data;
    std::size_t sent;  // bytes, with the header
    std::int64_t number;
    std::vector<unsigned char> copy = {};
  };

  // The mutex is locked.
  std::int64_t append(const CommCall& call, const void* data, std::size_t bytes);
  void flush_locked();

  void fail_with(const std::string& reason);

  // Reads up to `bytes`; returns their number.
  std::size_t read_some(void* data, std::size_t bytes);

  int rank_;
  Socket socket_;

  mutable std::mutex mutex_;  // for the members of this part
  std::deque<Unsent> unsent_;
  std::int64_t num_messages_ = 0, num_sent_ = 0;
  std::string failure_;

  LinkHeader arriving_;
  std::size_t arrived_ = 0;  // bytes of the message that arrives, with its header
};

}  // namespace tcp

}  // namespace llmc
