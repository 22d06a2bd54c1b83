// The state of the test double: its communicators, the faults that it injects, and what it counts.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/nccl_double/nccl.h"

struct ncclComm {
  int rank = 0, ranks = 1;
  std::vector<int> processes;  // the process of each rank, in MPI_COMM_WORLD
  int tag = 0;                 // the first one of its messages
  bool live = true;            // neither destroyed nor aborted
  bool is_final = false;       // ncclCommFinalize was called
  ncclResult_t state = ncclInProgress;
  std::string error;
  int polls = 0;                             // that return ncclInProgress before the calls advance
  bool has_late_error = false;               // injected; reported after the next ncclSuccess
  std::vector<std::function<bool()>> steps;  // of calls; each returns whether its call is complete
  std::vector<std::function<bool()>> group;  // calls of an open group
  std::int64_t collectives = 0;
  std::vector<std::int64_t> sent, received;  // messages per rank
};

namespace nccl_double {

// The call number `call` on the process `process`. Communication is counted from 1, over all
// communicators; 0 is an initialisation.
struct Place {
  int process = -1, call = -1;
};

inline Place place_from_environment(const char* name) {
  Place place;
  const char* const text = std::getenv(name);
  if (text != nullptr) std::sscanf(text, "%d:%d", &place.process, &place.call);
  return place;
}

// Injected faults, from the environment. A place is RANK:CALL.
struct Faults {
  int polls = std::getenv("NCCL_DOUBLE_POLLS") ? std::atoi(std::getenv("NCCL_DOUBLE_POLLS")) : 3;
  Place error = place_from_environment("NCCL_DOUBLE_ERROR");  // the call fails while it is polled
  Place late = place_from_environment("NCCL_DOUBLE_LATE_ERROR");  // an error after the call
  Place hang = place_from_environment("NCCL_DOUBLE_HANG");        // the call never completes
};

// A message that a stream holds until its receiver calls, while the host continues. As in NCCL,
// later calls of the communicator and later calls in the stream wait for it.
struct StreamSend {
  const ncclComm* comm = nullptr;
  const void* stream = nullptr;
  std::function<bool()> step;
  bool is_complete = false;
};

struct Double {
  Faults faults;
  int opened = 0, destroyed = 0, aborted = 0;
  int misuses = 0;      // calls that NCCL does not allow at this time
  int in_progress = 0;  // polls and calls that returned ncclInProgress
  int depth = 0;        // of groups
  int calls = 0, ids = 0;
  int process = 0;  // the rank in MPI_COMM_WORLD
  std::set<ncclComm*> group;
  std::vector<std::unique_ptr<ncclComm>> comms;  // kept, so that a late use is detected
  std::vector<std::shared_ptr<StreamSend>> stream_sends;

  static Double& instance() {
    static Double instance;
    return instance;
  }
  static bool is(const Place& place, int call) {
    return place.process == instance().process && place.call == call;
  }
};

// "opened 3, destroyed 3, aborted 0, misuses 0, open groups 0"
inline std::string report() {
  const Double& d = Double::instance();
  return "opened " + std::to_string(d.opened) + ", destroyed " + std::to_string(d.destroyed) +
         ", aborted " + std::to_string(d.aborted) + ", misuses " + std::to_string(d.misuses) +
         ", open groups " + std::to_string(d.depth);
}

inline ncclResult_t misuse(ncclComm* comm, const std::string& text) {
  ++Double::instance().misuses;
  if (comm != nullptr) comm->error = text;
  std::cerr << "NCCL's double: " + text + "\n" << std::flush;
  return ncclInvalidUsage;
}

inline void set_error(ncclComm* comm, ncclResult_t state, const std::string& text) {
  comm->state = state;
  comm->error = text;
}

// The messages of aborted communicators stay: MPI may still read them.
inline void advance_stream_sends() {
  std::vector<std::shared_ptr<StreamSend>>& stream_sends = Double::instance().stream_sends;
  for (const auto& send : stream_sends) {
    if (send->comm->live) send->is_complete = send->step();
  }
  std::erase_if(stream_sends, [](const auto& send) { return send->is_complete; });
}

// One poll of the calls in progress.
inline void advance(ncclComm* comm) {
  advance_stream_sends();
  if (comm->state != ncclInProgress) return;
  if (comm->polls > 0) {
    if (comm->polls != INT_MAX) --comm->polls;
    return;
  }
  std::erase_if(comm->steps, [](const std::function<bool()>& step) { return step(); });
  if (comm->steps.empty() && comm->state == ncclInProgress) comm->state = ncclSuccess;
}

// Starts the steps of a call. `number` is -1 for calls into which no fault is injected.
inline ncclResult_t launch(ncclComm* comm, int number) {
  Double& d = Double::instance();
  comm->state = ncclInProgress;
  comm->polls = d.faults.polls;
  if (number >= 0 && Double::is(d.faults.hang, number)) comm->polls = INT_MAX;
  if (number >= 0 && Double::is(d.faults.late, number)) comm->has_late_error = true;
  if (number >= 0 && Double::is(d.faults.error, number)) {
    comm->steps.insert(comm->steps.begin(), [comm] {
      set_error(comm, ncclSystemError, "injected");
      return true;
    });
  }
  if (comm->polls == 0) advance(comm);
  if (comm->state == ncclInProgress) ++d.in_progress;
  return comm->state;
}

// Whether a call may start now; the result of the call if not.
inline ncclResult_t check_call(ncclComm* comm, const std::string& call) {
  if (comm == nullptr) return misuse(nullptr, call + " without a communicator");
  if (!comm->live) return misuse(comm, call + " after the communicator was destroyed or aborted");
  if (comm->is_final) return misuse(comm, call + " after ncclCommFinalize");
  if (comm->state == ncclInProgress)
    return misuse(comm, call + " before the previous call is complete");
  if (comm->state != ncclSuccess) return misuse(comm, call + " after an error");
  return ncclSuccess;
}

// A step that follows the messages which the communicator and the stream hold now.
inline std::function<bool()> after_stream_sends(const ncclComm* comm, const void* stream,
                                                std::function<bool()> step) {
  std::vector<std::shared_ptr<StreamSend>> earlier;
  for (const auto& send : Double::instance().stream_sends) {
    if (send->comm == comm || send->stream == stream) earlier.push_back(send);
  }
  return [earlier, step = std::move(step)] {
    for (const auto& send : earlier) {
      if (!send->is_complete) return false;
    }
    return step();
  };
}

inline ncclResult_t start(ncclComm* comm, const void* stream, std::function<bool()> call) {
  Double& d = Double::instance();
  auto step = after_stream_sends(comm, stream, std::move(call));
  if (d.depth > 0) {
    comm->group.push_back(std::move(step));
    d.group.insert(comm);
    return ncclSuccess;
  }
  comm->steps.push_back(std::move(step));
  return launch(comm, ++d.calls);
}

// Messages of MPI that are under way. The destructor cancels the receives that are not complete:
// their memory may be freed next.
class Requests {
 public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    for (MPI_Request& request : receives_) {
      if (is_finalized != 0 || request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }

  void send(const ncclComm* comm, const void* data, std::size_t bytes, int rank, int tag) {
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, comm->processes[rank], comm->tag + tag,
              MPI_COMM_WORLD, &sends_.emplace_back(MPI_REQUEST_NULL));
  }
  void receive(const ncclComm* comm, void* data, std::size_t bytes, int rank, int tag) {
    const int process = rank < 0 ? MPI_ANY_SOURCE : comm->processes[rank];
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, process, comm->tag + tag, MPI_COMM_WORLD,
              &receives_.emplace_back(MPI_REQUEST_NULL));
  }
  bool complete() { return complete(sends_) && complete(receives_); }

 private:
  static bool complete(std::vector<MPI_Request>& requests) {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

  std::vector<MPI_Request> sends_, receives_;
};

// Kinds of messages; a tag is kind + 8 x (number of the call % 128).
enum Kind { kDescriptor, kData, kFromSender, kFromReceiver, kMessage, kJoin, kMembers };
inline constexpr int kTagsPerComm = 1024;

inline int tag_of(Kind kind, std::int64_t number) {
  return kind + 8 * static_cast<int>(number % 128);
}

}  // namespace nccl_double
