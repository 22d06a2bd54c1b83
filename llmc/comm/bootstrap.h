// Connects the processes of a run before they can communicate on device memory: places, and small
// data from one rank to others.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace llmc {

class TcpHub;

// `local_rank` of `local_ranks`: the place among the ranks on the same machine.
struct Places {
  int rank = 0, ranks = 1;
  int local_rank = 0, local_ranks = 1;
};

class Bootstrap {
 public:
  Bootstrap() = default;
  virtual ~Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  virtual const Places& places() const = 0;

  // The texts of all ranks, in their order. Every rank calls this. A text may have any bytes.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  // Returns `bytes` of the first of `members`, ranks of the run in ascending order. Every member
  // calls this with bytes of the same size, and calls for groups that share ranks are in the same
  // order on these. `name` of the group, for errors.
  virtual std::string broadcast(const std::string& name, const std::vector<int>& members,
                                std::string bytes) = 0;

  // The address by which this rank and ranks of other machines are connected, as a number; empty:
  // unknown, or only programs on this machine reach it.
  virtual std::string address() const { return ""; }

  // The connections to rank 0, for others to use too; null: it has none.
  virtual std::shared_ptr<TcpHub> hub() const { return nullptr; }

  // Throws if another rank is known to have failed. Does not wait.
  virtual void check() {}

  // Reports to the other ranks that this one has failed, and ends their processes if possible.
  virtual void abort(int exit_code) = 0;
};

std::string host_name();

// Equal for the processes of one machine: its name, and a number that it draws when it boots.
std::string machine_text();

}  // namespace llmc
