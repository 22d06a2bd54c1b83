// Ranks as processes that MPI connects. Collectives go through host memory
// (staged_communicator.h), so several ranks may share a GPU or have none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/mpi_bootstrap.h"
#include "llmc/comm/staged_communicator.h"
#include "llmc/comm/world.h"

namespace llmc {
namespace mpi {

class MpiTransport final : public Transport {
 public:
  // Takes the communicator.
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {
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

class MpiWorld final : public World {
 public:
  explicit MpiWorld(std::unique_ptr<Bootstrap> mpi) : World(mpi->places()), mpi_(std::move(mpi)) {}

  void abort(int exit_code) override { mpi_->abort(exit_code); }

 private:
  std::unique_ptr<Communicator> make_group(const std::string& name,
                                           const std::vector<int>& members) override {
    return std::make_unique<StagedCommunicator>(
        name, std::make_unique<mpi::MpiTransport>(mpi::group_comm(members)));
  }

  std::unique_ptr<Bootstrap> mpi_;
};

}  // namespace llmc
