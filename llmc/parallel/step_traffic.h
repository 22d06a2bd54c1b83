// The bytes that a rank sends in a step: formulae, which equal what its communicators count.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/comm/mesh.h"
#include "llmc/device/math.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/tensor_traffic.h"

namespace llmc {

struct StepTraffic {
  // Between ranks with the same part of the model: in shard groups, and between these.
  GroupTraffic gradients;  // reduce-scatter, and all-reduce between shard groups
  GroupTraffic weights;    // all-gather
  GroupTraffic scalars;    // all-gather of partial sums of the norm, all-reduce of the loss
  // In the tensor group.
  GroupTraffic activations;       // and the gradients of activations
  GroupTraffic copied_gradients;  // all-reduce of the gradients of norms, row biases, positions
  GroupTraffic tensor_scalars;    // all-gather of partial sums of the norm

  GroupTraffic data() const { return gradients + weights + scalars; }
  GroupTraffic tensor() const { return activations + copied_gradients + tensor_scalars; }
  std::int64_t all() const { return data().all() + tensor().all(); }
};

// Number of times that a step gathers each block of weights under stage 3: what WeightBuckets does
// if passes acquire blocks in the order of Gpt2. A step begins without gathered blocks. The
// embeddings stay; of the two slots for others, a block takes the one that was not used for
// longest.
inline std::vector<std::int64_t> gathers_of_blocks(std::int64_t blocks,
                                                   std::int64_t micro_batches) {
  std::vector<std::int64_t> gathers(static_cast<std::size_t>(blocks));
  std::int64_t older = -1, newer = -1;  // the blocks in the slots, by their last use
  const auto use = [&](std::int64_t block) {
    if (block != newer) {
      if (block != older) ++gathers[static_cast<std::size_t>(block)];
      older = std::exchange(newer, block);
    }
  };
  gathers[0] = 1;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    // The embedding acquires block 1 ahead, every other block the one after it.
    use(1);
    for (std::int64_t block = 1; block < blocks; ++block) {
      use(block);
      if (block + 1 < blocks) use(block + 1);
    }
    use(blocks - 1);  // ahead of the head
    for (std::int64_t block = blocks - 1; block > 0; --block) {
      use(block);
      if (block > 1) use(block - 1);
    }
  }
  return gathers;
}

// `run.B` sequences of `run.T` tokens per micro-batch. `size`: bytes of a weight or an activation
// in the dtype of the model.
inline StepTraffic step_traffic(const Gpt2Config& config, const RunShape& run, const Mesh& mesh,
                                std::int64_t micro_batches, std::int64_t size) {
  const ParameterTable table(config, {0, mesh.tensor_ranks});
  const ShardLayout layout(table, run.zero_stage, mesh.shard_ranks, 0);
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t N = mesh.data_ranks(), shards = layout.shards(), t = mesh.tensor_ranks;
  const std::int64_t replicas = shards > 1 ? mesh.replicas() : N;
  const auto blocks = static_cast<std::int64_t>(layout.buckets().size());
  const std::int64_t reductions = layout.shards_gradients() ? micro_batches : 1;
  const std::vector<std::int64_t> gathers = gathers_of_blocks(blocks, micro_batches);
  StepTraffic traffic;
  for (std::size_t block = 0; block < layout.buckets().size(); ++block) {
    const Bucket& bucket = layout.buckets()[block];
    traffic.gradients.reduce_scatter += reductions * bytes_sent(kFloat * bucket.stored, shards);
    traffic.gradients.all_reduce += reductions * bytes_sent(2 * kFloat * bucket.piece, replicas);
    const std::int64_t times = layout.shards_weights() ? gathers[block] : 1;
    traffic.weights.all_gather += times * bytes_sent(size * bucket.stored, shards);
    if (run.spreads_rows(t)) {
      traffic.copied_gradients.all_reduce +=
          reductions * bytes_sent(2 * kFloat * (bucket.size - bucket.split), t);
    }
  }
  traffic.scalars.all_reduce = bytes_sent(2 * kFloat, N);
  if (shards > 1) {
    traffic.scalars.all_gather =
        bytes_sent(kFloat * squared_norm_count(layout.shard_size()) * shards, shards);
  }
  if (t == 1) return traffic;
  const TensorTraffic passes(config, run, run.rows(), mesh.tensor_ranks, size);
  traffic.activations = (passes.forward() + passes.backward()) * micro_batches + passes.scales();
  traffic.tensor_scalars.all_gather =
      bytes_sent(kFloat * squared_norm_count(table.stored_size()) * t, t);
  return traffic;
}

}  // namespace llmc
