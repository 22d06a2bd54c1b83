#include "llmc/comm/mesh.h"

#include "llmc/base/error.h"

namespace llmc {

int Mesh::rank_at(int pipeline_rank, int replica, int shard_rank, int tensor_rank) const {
  return ((pipeline_rank * replicas() + replica) * shard_ranks + shard_rank) * tensor_ranks +
         tensor_rank;
}

std::vector<int> Mesh::tensor_group(int rank) const {
  return members(tensor_ranks, [&](int i) {
    return rank_at(pipeline_rank(rank), replica(rank), shard_rank(rank), i);
  });
}

std::vector<int> Mesh::shard_group(int rank) const {
  return members(shard_ranks, [&](int i) {
    return rank_at(pipeline_rank(rank), replica(rank), i, tensor_rank(rank));
  });
}

std::vector<int> Mesh::replica_group(int rank) const {
  return members(replicas(), [&](int i) {
    return rank_at(pipeline_rank(rank), i, shard_rank(rank), tensor_rank(rank));
  });
}

std::vector<int> Mesh::data_group(int rank) const {
  return members(data_ranks(), [&](int i) {
    return (pipeline_rank(rank) * data_ranks() + i) * tensor_ranks + tensor_rank(rank);
  });
}

std::vector<int> Mesh::pipeline_group(int rank) const {
  return members(pipeline_ranks, [&](int i) {
    return rank_at(i, replica(rank), shard_rank(rank), tensor_rank(rank));
  });
}

Mesh make_mesh(int ranks, int shard_ranks, int tensor_ranks, int pipeline_ranks) {
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

std::string mesh_text(const Mesh& mesh) {
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
