// Layouts of ranks for tests: how many there are, and what they divide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/channel.h"
#include "llmc/comm/mesh.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc_test {

using namespace llmc;

struct Layout {
  int ranks = 1, stage = 0, shard_ranks = 1;
  std::int64_t micro_batches = 1;  // per data rank
  int tensor_ranks = 1;
  bool sequence_parallel = false;
  int pipeline_ranks = 1, chunks = 1;
  std::vector<std::int64_t> stage_layers = {};  // of each stage; empty: as even as possible
  PipelineSchedule schedule = {};               // empty: 1F1B or interleaved 1F1B
  Channel::StreamChoice message_streams = Channel::StreamChoice::by_backend;

  Mesh mesh() const { return make_mesh(ranks, shard_ranks, tensor_ranks, pipeline_ranks); }
  Pipeline pipeline(std::int64_t layers) const {
    return make_pipeline({pipeline_ranks, static_cast<int>(micro_batches), chunks}, layers,
                         stage_layers, schedule.empty() ? std::nullopt : std::optional(schedule));
  }
  bool has_uneven_stages() const { return !stage_layers.empty(); }
  std::string text() const {
    return std::to_string(ranks) + " ranks, stage " + std::to_string(stage) + ", shard groups of " +
           std::to_string(shard_ranks) + ", " + std::to_string(micro_batches) + " micro-batches" +
           (tensor_ranks == 1 ? "" : ", " + std::to_string(tensor_ranks) + " tensor ranks") +
           (sequence_parallel ? ", sequence parallel" : "") +
           (pipeline_ranks == 1 ? "" : ", " + std::to_string(pipeline_ranks) + " pipeline ranks") +
           (chunks == 1 ? "" : ", " + std::to_string(chunks) + " chunks") +
           (stage_layers.empty() ? "" : ", uneven stages");
  }
  std::int64_t batches() const { return mesh().data_ranks() * micro_batches; }
};

// The stages and shard groups of ZeRO over these data ranks, with and without sequence parallelism
// if there are tensor ranks: `layout` with each of them.
inline std::vector<Layout> with_all_shards(Layout layout) {
  const int data_ranks = layout.ranks / layout.tensor_ranks / layout.pipeline_ranks;
  std::vector<Layout> all;
  for (const int stage : {0, 1, 2, 3}) {
    for (int shard_ranks = 1; shard_ranks <= data_ranks; ++shard_ranks) {
      // Stage 0 shards nothing, the others have at least two shards if there are data ranks.
      const bool has_shards = shard_ranks > 1 || data_ranks == 1;
      if (data_ranks % shard_ranks != 0 || (stage == 0 ? shard_ranks > 1 : !has_shards)) continue;
      layout.stage = stage;
      layout.shard_ranks = shard_ranks;
      for (const bool sequence_parallel : {false, true}) {
        layout.sequence_parallel = sequence_parallel;
        if (!sequence_parallel || layout.tensor_ranks > 1) all.push_back(layout);
      }
    }
  }
  return all;
}

// Every number of tensor ranks over 2, 4, 6 and 8 ranks, every stage and shard group, with and
// without sequence parallelism.
inline std::vector<Layout> tensor_layouts() {
  std::vector<Layout> all;
  for (const int ranks : {2, 4, 6, 8}) {
    for (int tensor_ranks = 2; tensor_ranks <= ranks; ++tensor_ranks) {
      if (ranks % tensor_ranks != 0) continue;
      for (const Layout& layout : with_all_shards({.ranks = ranks, .tensor_ranks = tensor_ranks})) {
        all.push_back(layout);
      }
    }
  }
  return all;
}

// The same for every number of pipeline ranks from 2 on and every number of tensor ranks that fits
// next to them, with 1F1B, with uneven stages, and interleaved with two chunks.
inline std::vector<Layout> pipeline_layouts() {
  std::vector<Layout> all;
  for (const int ranks : {2, 4, 6, 8}) {
    for (int p = 2; p <= ranks; ++p) {
      for (int tensor_ranks = 1; tensor_ranks <= ranks / p; ++tensor_ranks) {
        if (ranks % (p * tensor_ranks) != 0) continue;
        for (Layout layout :
             with_all_shards({.ranks = ranks, .tensor_ranks = tensor_ranks, .pipeline_ranks = p})) {
          all.push_back(layout);
          layout.stage_layers.assign(static_cast<std::size_t>(p), 1);
          layout.stage_layers.front() = 2;
          all.push_back(layout);
          layout.stage_layers.clear();
          layout.chunks = 2;
          all.push_back(layout);
        }
      }
    }
  }
  return all;
}

}  // namespace llmc_test
