// The ranks of a run, and the communicators of their groups.
#pragma once

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/bootstrap.h"
#include "llmc/comm/communicator.h"
#include "llmc/comm/single_rank.h"

namespace llmc {

// How long a rank waits for others.
struct WaitLimits {
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  // Whether a control thread (llmc/control) ends waits in calls: then only other waits, such as
  // those for connections, have the deadline.
  bool is_watched = false;

  // The deadline of a wait in a call.
  std::chrono::milliseconds of_call() const {
    return is_watched ? std::chrono::hours(24 * 365) : deadline;
  }
};

class World {
 public:
  explicit World(const Places& places) : places_(places) {}
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return places_.rank; }
  int ranks() const { return places_.ranks; }
  // The place among the ranks on the same machine.
  int local_rank() const { return places_.local_rank; }
  int local_ranks() const { return places_.local_ranks; }

  // Ends the processes of all ranks with this exit code, without waiting for any. Does nothing if
  // there are no others. Without MPI it only reports the failure to the other ranks
  // (tcp_bootstrap.h); the caller then exits.
  virtual void abort(int exit_code) = 0;

  // Ends all communication of this rank: calls that wait for others, now or later, never complete
  // or throw. A thread other than that of the calls may call it, shortly before the process ends.
  virtual void abort_calls() {}

  // Groups that are made later note their calls in this log, which must outlive them.
  void log_calls(CallLog& log) { log_ = &log; }

  // A communicator of the ranks `members`, in ascending order, this one included. Each of them
  // calls this with equal arguments, and calls for groups that share ranks are in the same order on
  // these. Rank r of the group is members[r]. The world must outlive the communicator.
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& members) {
    check_members(name, members);
    if (members.size() == 1) return std::make_unique<SingleRankCommunicator>(name);
    std::unique_ptr<Communicator> group = make_group(name, members);
    if (log_ != nullptr) group->log_calls(*log_, members);
    return group;
  }

  // A communicator of all ranks.
  std::unique_ptr<Communicator> all(const std::string& name = "world") {
    std::vector<int> members(static_cast<std::size_t>(ranks()));
    std::iota(members.begin(), members.end(), 0);
    return group(name, members);
  }

 protected:
  // At least two members.
  virtual std::unique_ptr<Communicator> make_group(const std::string& name,
                                                   const std::vector<int>& members) = 0;

  // The place of this rank in the members.
  int place_in(const std::vector<int>& members) const {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank()) return static_cast<int>(i);
    }
    return -1;
  }

 private:
  void check_members(const std::string& name, const std::vector<int>& members) const {
    int last = -1;
    for (const int member : members) {
      require(last < member && member < ranks(),
              "the ranks of group '" + name + "' are not ascending, or not ranks of the run");
      last = member;
    }
    require(place_in(members) >= 0, "rank " + std::to_string(rank()) + " is not in group '" + name +
                                        "', for which it asks a communicator");
  }

  Places places_;
  CallLog* log_ = nullptr;
};

class SingleRankWorld final : public World {
 public:
  SingleRankWorld() : World(Places{}) {}
  void abort(int) override {}

 private:
  std::unique_ptr<Communicator> make_group(const std::string&, const std::vector<int>&) override {
    fail("a run of one rank has no groups of several");
  }
};

}  // namespace llmc
