// The places of ranks in a run: a pure function of the number of ranks, of the sizes of tensor and
// shard groups, and of pipelines.
#pragma once

#include <string>
#include <vector>

namespace llmc {

// Neighbouring ranks form a tensor group, which computes each layer together (tensor parallelism).
// All ranks of a tensor group train on the same samples: they have the same data rank. The ranks
// with the same tensor rank in `shard_ranks` neighbouring tensor groups form a shard group, which
// divides the training state of their part of the model (ZeRO). Ranks with the same place in their
// shard groups hold the same shard: they are its replicas. All of this repeats for each
// pipeline rank, which holds some of the layers: the ranks that differ in nothing else form a
// pipeline group.
//
//     rank = ((pipeline rank * replicas + replica) * shard_ranks + shard rank) * tensor_ranks
//            + tensor rank
//
// The more often ranks communicate, the closer they are.
struct Mesh {
  int ranks = 1;
  int shard_ranks = 1;
  int tensor_ranks = 1;
  int pipeline_ranks = 1;

  int data_ranks() const { return ranks / tensor_ranks / pipeline_ranks; }
  int replicas() const { return data_ranks() / shard_ranks; }

  int tensor_rank(int rank) const { return rank % tensor_ranks; }
  int data_rank(int rank) const { return rank / tensor_ranks % data_ranks(); }
  int shard_rank(int rank) const { return data_rank(rank) % shard_ranks; }
  int replica(int rank) const { return data_rank(rank) / shard_ranks; }
  int pipeline_rank(int rank) const { return rank / (tensor_ranks * data_ranks()); }
  int rank_at(int pipeline_rank, int replica, int shard_rank, int tensor_rank) const;

  // The ranks that compute each layer together, with `rank` among them.
  std::vector<int> tensor_group(int rank) const;
  // The ranks that hold the shards of one part of a model.
  std::vector<int> shard_group(int rank) const;
  // The ranks that hold the same shard as `rank`.
  std::vector<int> replica_group(int rank) const;
  // The ranks that hold the same part of a model, or shards of it.
  std::vector<int> data_group(int rank) const;
  // The ranks that hold all layers together, or one tensor rank's part of them.
  std::vector<int> pipeline_group(int rank) const;

 private:
  template <class Member>
  static std::vector<int> members(int count, const Member& member) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(member(i));
    return ranks;
  }
};

// Throws if the ranks of a pipeline or of a tensor group do not divide the ranks, or if shard
// groups of this size do not divide what is left.
Mesh make_mesh(int ranks, int shard_ranks, int tensor_ranks = 1, int pipeline_ranks = 1);

// A line per rank: its place, and the ranks of its groups. Tensor groups of one rank and pipelines
// of one rank are omitted.
std::string mesh_text(const Mesh& mesh);

}  // namespace llmc
