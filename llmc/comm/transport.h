// Moves bytes in host memory between the ranks of a group. Collectives on device memory are built
// on it (staged_communicator.h).
#pragma once

#include <cstddef>
#include <span>

#include "llmc/comm/call.h"

namespace llmc {

struct Outgoing {
  int to = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

struct Incoming {
  int from = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // In the group.
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Sends and receives all of these and returns when they are complete. `call` is the call that
  // they belong to. Throws if a sender's call differs, or if another rank has failed. At most one
  // message to each rank and one from each rank; none to or from itself. A message may be empty.
  virtual void exchange(const CommCall& call, std::span<const Outgoing> sends,
                        std::span<const Incoming> receives) = 0;

  // Copies the message and returns without waiting for the receiver, which takes it by exchange()
  // with an equal call. Messages to a rank arrive in the order of post() and exchange(). They stay
  // valid if the sender ends or destroys its transport first.
  virtual void post(const CommCall& call, const Outgoing& message) = 0;
};

}  // namespace llmc
