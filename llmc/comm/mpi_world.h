// Ranks as processes that MPI connects. Collectives go through host memory
// (staged_communicator.h), so several ranks may share a GPU or have none.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/comm/mpi_bootstrap.h"
#include "llmc/comm/poll_pause.h"
#include "llmc/comm/staged_communicator.h"
#include "llmc/comm/world.h"

namespace llmc {
namespace mpi {

class MpiTransport final : public Transport {
 public:
  // Takes the communicator of `members`, ranks of the run.
  MpiTransport(MPI_Comm comm, std::vector<int> members)
      : comm_(comm), members_(std::move(members)) {
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &ranks_), "MPI_Comm_size");
  }
  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    wait_for_receivers();
    keep_pending_messages();
    MPI_Comm_free(&comm_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  // Calls and sizes go first: a receiver must not accept the data of another call.
  void exchange(const CommCall& call, std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override {
    free_complete_messages();
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

  void post(const CommCall& call, const Outgoing& send) override {
    free_complete_messages();
    auto message = std::make_unique<Posted>();
    message->header = {call, send.bytes};
    const auto* const bytes = static_cast<const unsigned char*>(send.data);
    message->data.assign(bytes, bytes + send.bytes);
    start_send(&message->header, sizeof(Header), send.to, kHeader, message->requests);
    if (send.bytes > 0)
      start_send(message->data.data(), send.bytes, send.to, kData, message->requests);
    posted_.push_back(std::move(message));
  }

 private:
  enum Tag { kHeader = 1, kData = 2 };

  struct Header {
    CommCall call;
    std::uint64_t bytes = 0;
  };

  // A message that MPI reads until its requests are complete.
  struct Posted {
    Header header;
    std::vector<unsigned char> data;
    std::vector<MPI_Request> requests;

    bool is_complete() {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
      return done != 0;
    }
  };

  void free_complete_messages() {
    std::erase_if(posted_, [](const auto& message) { return message->is_complete(); });
  }

  // The end of this process must not delay receivers, because MPI moves data only inside its calls.
  // After an exception, or if ranks disagree, the receivers may never come.
  void wait_for_receivers() {
    if (std::uncaught_exceptions() > exceptions_) return;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    try {
      for (PollPause pause; std::chrono::steady_clock::now() < end; pause.next()) {
        free_complete_messages();
        if (posted_.empty()) return;
      }
    } catch (const std::exception& error) {
      Notice::warn(error.what());
    }
  }

  // MPI may read the messages that are still pending until the process ends, so their memory is
  // never freed. Their receivers can still take them.
  void keep_pending_messages() {
    for (auto& message : posted_) {
      for (MPI_Request& request : message->requests) {
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
      }
      static_cast<void>(message.release());
    }
  }

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
      require_same_call(call, run_rank(rank_), theirs[i].call, run_rank(receives[i].from));
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

  static constexpr std::chrono::seconds kPatience{2};

  int run_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  MPI_Comm comm_;
  std::vector<int> members_;
  int rank_ = 0, ranks_ = 1;
  int exceptions_ = std::uncaught_exceptions();  // when the transport was made
  std::deque<std::unique_ptr<Posted>> posted_;
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
        name, std::make_unique<mpi::MpiTransport>(mpi::group_comm(members), members));
  }

  std::unique_ptr<Bootstrap> mpi_;
};

}  // namespace llmc
