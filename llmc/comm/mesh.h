// The places of ranks in a run: a pure function of the number of ranks, of the sizes of tensor and
// shard groups, and of pipelines.
#pragma once

#include <string>
#include <vector>

#include "llmc/base/error.h"

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
  int rank_at(int pipeline_rank, int replica, int shard_rank, int tensor_rank) const {
    return ((pipeline_rank * replicas() + replica) * shard_ranks + shard_rank) * tensor_ranks +
           tensor_rank;
  }

  // The ranks that compute each layer together, with `rank` among them.
  std::vector<int> tensor_group(int rank) const {
    return members(tensor_ranks, [&](int i) {
      return rank_at(pipeline_rank(rank), replica(rank), shard_rank(rank), i);
    });
  }
  // The ranks that hold the shards of one part of a model.
  std::vector<int> shard_group(int rank) const {
    return members(shard_ranks, [&](int i) {
      return rank_at(pipeline_rank(rank), replica(rank), i, tensor_rank(rank));
    });
  }
  // The ranks that hold the same shard as `rank`.
  std::vector<int> replica_group(int rank) const {
    return members(replicas(), [&](int i) {
      return rank_at(pipeline_rank(rank), i, shard_rank(rank), tensor_rank(rank));
    });
  }
  // The ranks that hold the same part of a model, or shards of it.
  std::vector<int> data_group(int rank) const {
    return members(data_ranks(), [&](int i) {
      return (pipeline_rank(rank) * data_ranks() + i) * tensor_ranks + tensor_rank(rank);
    });
  }
  // The ranks that hold all layers together, or one tensor rank's part of them.
  std::vector<int> pipeline_group(int rank) const {
    return members(pipeline_ranks, [&](int i) {
      return rank_at(i, replica(rank), shard_rank(rank), tensor_rank(rank));
    });
  }

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
inline Mesh make_mesh(int ranks, int shard_ranks, int tensor_ranks = 1, int pipeline_ranks = 1) {
  require(ranks >= 1, "a run has at least one rank");
  const std::string undivided = std::to_string(ranks) + " ranks cannot be divided into ";
  const std::string tensor_groups = "tensor groups of " + std::to_string(tensor_ranks);
  if (tensor_ranks < 1 || ranks % tensor_ranks != 0) {
    fail(undivided + tensor_groups,
         "use a number of " + quantity("tensor ranks") + " that divides the number of ranks");
  }
  if (pipeline_ranks < 1 || ranks / tensor_ranks % pipeline_ranks != 0) {
    fail(undivided + "pipelines of " + std::to_string(pipeline_ranks) +
             (tensor_ranks > 1 ? " with " + tensor_groups : ""),
         "use a number of ranks that is a multiple of " + quantity("tensor ranks") + " times " +
             quantity("pipeline ranks"));
  }
  const Mesh mesh{ranks, shard_ranks, tensor_ranks, pipeline_ranks};
  if (shard_ranks >= 1 && mesh.data_ranks() % shard_ranks == 0) return mesh;
  const std::string kind = mesh.data_ranks() < ranks ? "data-parallel ranks" : "ranks";
  fail(std::to_string(mesh.data_ranks()) + " " + kind + " cannot be divided into shard groups of " +
           std::to_string(shard_ranks),
       "use a " + quantity("shard group") + " that divides the number of " + kind);
}

// A line per rank: its place, and the ranks of its groups. Tensor groups of one rank and pipelines
// of one rank are omitted.
inline std::string mesh_text(const Mesh& mesh) {
  const auto list = [](const std::string& name, const std::vector<int>& ranks) {
    std::string text = "; " + name + " group";
    for (const int rank : ranks) text += " " + std::to_string(rank);
    return text;
  };
  const auto place = [](const char* name, int index, int count) {
    return std::string(name) + " " + std::to_string(index) + " of " + std::to_string(count);
  };
  const bool tensor = mesh.tensor_ranks > 1, pipeline = mesh.pipeline_ranks > 1;
  std::string text;
  for (int rank = 0; rank < mesh.ranks; ++rank) {
    text += "rank " + std::to_string(rank) + ": " +
            (pipeline ? place("pipeline rank", mesh.pipeline_rank(rank), mesh.pipeline_ranks) + ", "
                      : "") +
            place("replica", mesh.replica(rank), mesh.replicas()) + ", " +
            place("shard", mesh.shard_rank(rank), mesh.shard_ranks) +
            (tensor ? ", " + place("tensor rank", mesh.tensor_rank(rank), mesh.tensor_ranks) : "") +
            list("shard", mesh.shard_group(rank)) + list("replica", mesh.replica_group(rank)) +
            (tensor ? list("tensor", mesh.tensor_group(rank)) : "") +
            (pipeline ? list("pipeline", mesh.pipeline_group(rank)) : "") + "\n";
  }
  return text;
}

}  // namespace llmc
