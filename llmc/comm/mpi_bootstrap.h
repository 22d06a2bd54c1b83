// Processes that MPI connects.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "llmc/comm/bootstrap.h"

namespace llmc {

namespace mpi {

void check(int status, const char* call);

// Waits for all requests without a busy core: MPI's own waits poll.
void wait_for(std::vector<MPI_Request>& requests);

// A communicator of some ranks of the run. Each of them calls this.
MPI_Comm group_comm(const std::vector<int>& members);

}  // namespace mpi

// Starts MPI, once per process, and ends it. Only the main thread may communicate.
class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap();
  ~MpiBootstrap() override { MPI_Finalize(); }

  const Places& places() const override { return places_; }

  std::vector<std::string> all_gather(const std::string& text) override;

  std::string broadcast(const std::string&, const std::vector<int>& members,
                        std::string bytes) override;

  void abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

 private:
  static void place_in(MPI_Comm comm, int& rank, int& ranks);

  Places places_;
};

}  // namespace llmc
