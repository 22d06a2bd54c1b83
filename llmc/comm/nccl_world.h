// Ranks that communicate by NCCL: one process and one GPU per rank. A bootstrap (MPI or TCP)
// connects the processes and distributes the ids of the groups.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/bootstrap.h"
#include "llmc/comm/nccl_communicator.h"
#include "llmc/comm/world.h"

namespace llmc {

class NcclWorld final : public World {
 public:
  explicit NcclWorld(std::unique_ptr<Bootstrap> bootstrap, const WaitLimits& limits = {})
      : World(bootstrap->places()), bootstrap_(std::move(bootstrap)) {
    shared_->deadline = limits.deadline;
    shared_->is_watched = limits.is_watched;
    shared_->check_ranks = [&bootstrap = *bootstrap_] { bootstrap.check(); };
  }

  void abort(int exit_code) override { bootstrap_->abort(exit_code); }

  void abort_calls() override {
    const std::lock_guard lock(shared_->mutex);
    for (NcclCommunicator* open : std::vector(shared_->open)) open->abort("a rank is lost");
  }

 private:
  // The group's first rank makes the id.
  std::unique_ptr<Communicator> make_group(const std::string& name,
                                           const std::vector<int>& members) override {
    ncclUniqueId id{};
    if (rank() == members.front()) {
      const ncclResult_t status = ncclGetUniqueId(&id);
      if (status != ncclSuccess)
        fail("group '" + name + "': ncclGetUniqueId: " + ncclGetErrorString(status));
    }
    const std::string bytes =
        bootstrap_->broadcast(name, members, std::string(id.internal, sizeof id.internal));
    bytes.copy(id.internal, sizeof id.internal);
    return std::make_unique<NcclCommunicator>(name, place_in(members),
                                              static_cast<int>(members.size()), id, shared_);
  }

  std::unique_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<NcclShared> shared_ = std::make_shared<NcclShared>();
};

}  // namespace llmc
