// Ranks as processes that MPI connects. Collectives go through host memory
// (staged_communicator.h), so several ranks may share a GPU or have none.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/staged_communicator.h"
#include "llmc/comm/world.h"

namespace llmc {
namespace mpi {

inline void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(status, text.data(), &size);
  fail(std::string(call) + " failed: " + text.data());
}

// Waits for all requests without a busy core: MPI's own waits poll. First for a few microseconds,
// then with sleeps that become longer.
inline void wait_for(std::vector<MPI_Request>& requests) {
  constexpr int kPolls = 200;
  constexpr std::chrono::microseconds kFirst{10}, kLast{500};
  std::chrono::microseconds pause = kFirst;
  for (int poll = 0;; ++poll) {
    int done = 0;
    check(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done != 0) break;
    if (poll < kPolls) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLast);
  }
  requests.clear();
}

class MpiTransport final : public Transport {
 public:
  // Takes the communicator.
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &ranks_), "MPI_Comm_size");
  }
  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  // Calls and sizes go first: a receiver must not accept the data of another call.
  void exchange(const CommCall& call, std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override {
    exchange_headers(call, sends, receives);
    std::vector<MPI_Request> requests;
    for (const Incoming& receive : receives) {
      if (receive.bytes > 0)
        start_receive(receive.data, receive.bytes, receive.from, kData, requests);
    }
    for (const Outgoing& send : sends) {
      if (send.bytes > 0) start_send(send.data, send.bytes, send.to, kData, requests);
    }
    wait_for(requests);
  }

 private:
  enum Tag { kHeader = 1, kData = 2 };

  struct Header {
    CommCall call;
    std::uint64_t bytes = 0;
  };

  void exchange_headers(const CommCall& call, std::span<const Outgoing> sends,
                        std::span<const Incoming> receives) {
    std::vector<Header> theirs(receives.size()), mine;
    std::vector<MPI_Request> requests;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      start_receive(&theirs[i], sizeof(Header), receives[i].from, kHeader, requests);
    }
    for (const Outgoing& send : sends) mine.push_back({call, send.bytes});
    for (std::size_t i = 0; i < sends.size(); ++i) {
      start_send(&mine[i], sizeof(Header), sends[i].to, kHeader, requests);
    }
    wait_for(requests);
    for (std::size_t i = 0; i < receives.size(); ++i) {
      require_same_call(call, rank_, theirs[i].call, receives[i].from);
      require(theirs[i].bytes == receives[i].bytes, "ranks disagree on the size of a message");
    }
  }

  void start_receive(void* data, std::size_t bytes, int from, Tag tag,
                     std::vector<MPI_Request>& requests) {
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_,
                    &requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Irecv");
  }
  void start_send(const void* data, std::size_t bytes, int to, Tag tag,
                  std::vector<MPI_Request>& requests) {
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_,
                    &requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Isend");
  }

  MPI_Comm comm_;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace mpi

// Starts MPI, once per process, and ends it. Only the main thread may communicate.
class MpiWorld final : public World {
 public:
  MpiWorld() : MpiWorld(start()) {}
  ~MpiWorld() override { MPI_Finalize(); }

  void abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

 private:
  struct Place {
    int rank = 0, ranks = 1;
  };

  explicit MpiWorld(const std::array<Place, 2>& places)
      : World(places[0].rank, places[0].ranks, places[1].rank, places[1].ranks) {}

  // The places among all ranks and among those on this machine.
  static std::array<Place, 2> start() {
    int provided = 0;
    mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
               "MPI_Init_thread");
    require(provided >= MPI_THREAD_FUNNELED, "this MPI library does not support threads");
    mpi::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
               "MPI_Comm_set_errhandler");
    MPI_Comm machine = MPI_COMM_NULL;
    mpi::check(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
    const std::array<Place, 2> places = {place_in_comm(MPI_COMM_WORLD), place_in_comm(machine)};
    MPI_Comm_free(&machine);
    return places;
  }
  static Place place_in_comm(MPI_Comm comm) {
    Place place;
    mpi::check(MPI_Comm_rank(comm, &place.rank), "MPI_Comm_rank");
    mpi::check(MPI_Comm_size(comm, &place.ranks), "MPI_Comm_size");
    return place;
  }

  std::unique_ptr<Communicator> make_group(const std::string& name,
                                           const std::vector<int>& members) override {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    mpi::check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
    mpi::check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some),
               "MPI_Group_incl");
    mpi::check(MPI_Comm_create_group(MPI_COMM_WORLD, some, members.front(), &comm),
               "MPI_Comm_create_group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return std::make_unique<StagedCommunicator>(name, std::make_unique<mpi::MpiTransport>(comm));
  }
};

}  // namespace llmc
