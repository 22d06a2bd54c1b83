// The places of ranks in a run: a pure function of their number and of the size of a shard group.
#pragma once

#include <string>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

// Groups of `shard_ranks` neighbouring ranks share the state of one model (ZeRO). Ranks with the
// same place in their groups hold the same shard: they are its replicas.
struct Mesh {
  int ranks = 1;
  int shard_ranks = 1;

  int replicas() const { return ranks / shard_ranks; }
  int shard_rank(int rank) const { return rank % shard_ranks; }
  int replica(int rank) const { return rank / shard_ranks; }

  // The ranks that hold the shards of one model, with `rank` among them.
  std::vector<int> shard_group(int rank) const {
    std::vector<int> members;
    for (int i = 0; i < shard_ranks; ++i) members.push_back(replica(rank) * shard_ranks + i);
    return members;
  }
  // The ranks that hold the same shard as `rank`.
  std::vector<int> replica_group(int rank) const {
    std::vector<int> members;
    for (int i = 0; i < replicas(); ++i) members.push_back(i * shard_ranks + shard_rank(rank));
    return members;
  }
};

// Throws if shard groups of this size do not divide the ranks.
inline Mesh make_mesh(int ranks, int shard_ranks) {
  if (ranks >= 1 && shard_ranks >= 1 && ranks % shard_ranks == 0) return {ranks, shard_ranks};
  fail(std::to_string(ranks) + " ranks cannot be divided into shard groups of " +
           std::to_string(shard_ranks),
       "use a " + quantity("shard group") + " that divides the number of ranks");
}

// A line per rank: its place, and the ranks of its groups.
inline std::string mesh_text(const Mesh& mesh) {
  const auto list = [](const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
    return text;
  };
  std::string text;
  for (int rank = 0; rank < mesh.ranks; ++rank) {
    text += "rank " + std::to_string(rank) + ": replica " + std::to_string(mesh.replica(rank)) +
            " of " + std::to_string(mesh.replicas()) + ", shard " +
            std::to_string(mesh.shard_rank(rank)) + " of " + std::to_string(mesh.shard_ranks) +
            "; shard group " + list(mesh.shard_group(rank)) + "; replica group " +
            list(mesh.replica_group(rank)) + "\n";
  }
  return text;
}

}  // namespace llmc
