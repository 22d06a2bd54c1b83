// Layouts of ranks for tests: how many there are, and what they divide.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"

namespace llmc_test {

using namespace llmc;

struct Layout {
  int ranks = 1, stage = 0, shard_ranks = 1;
  std::int64_t micro_batches = 1;  // per data rank
  int tensor_ranks = 1;
  bool sequence_parallel = false;

  Mesh mesh() const { return make_mesh(ranks, shard_ranks, tensor_ranks); }
  std::string text() const {
    return std::to_string(ranks) + " ranks, stage " + std::to_string(stage) + ", shard groups of " +
           std::to_string(shard_ranks) + ", " + std::to_string(micro_batches) + " micro-batches" +
           (tensor_ranks == 1 ? "" : ", " + std::to_string(tensor_ranks) + " tensor ranks") +
           (sequence_parallel ? ", sequence parallel" : "");
  }
  std::int64_t batches() const { return mesh().data_ranks() * micro_batches; }
};

// Every number of tensor ranks over 2, 4, 6 and 8 ranks, every stage and shard group, with and
// without sequence parallelism.
inline std::vector<Layout> tensor_layouts() {
  std::vector<Layout> all;
  for (const int ranks : {2, 4, 6, 8}) {
    for (int tensor_ranks = 2; tensor_ranks <= ranks; ++tensor_ranks) {
      if (ranks % tensor_ranks != 0) continue;
      const int data_ranks = ranks / tensor_ranks;
      for (const int stage : {0, 1, 2, 3}) {
        for (int shard_ranks = 1; shard_ranks <= data_ranks; ++shard_ranks) {
          // Stage 0 shards nothing, the others have at least two shards if there are data ranks.
          const bool has_shards = shard_ranks > 1 || data_ranks == 1;
          if (data_ranks % shard_ranks != 0 || (stage == 0 ? shard_ranks > 1 : !has_shards))
            continue;
          for (const bool sequence_parallel : {false, true}) {
            all.push_back({.ranks = ranks,
                           .stage = stage,
                           .shard_ranks = shard_ranks,
                           .tensor_ranks = tensor_ranks,
                           .sequence_parallel = sequence_parallel});
          }
        }
      }
    }
  }
  return all;
}

}  // namespace llmc_test
