// Which rank writes which part of a checkpoint: a pure function of the parameter table, the shard
// layout and the mesh, so that all ranks know it without a word.
//
// Weights are written as whole tensors, each by one rank. If they are small, few ranks write. A
// rank of the pipeline stage that holds a parameter has it anyway, or most of it, so the tensors
// are dealt by bytes to the writers among these ranks. Moments are written as ranks hold them.
// Ranks that hold equal copies divide them, tensor by tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/comm/mesh.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

// Bytes of weights from which on one more rank helps to write them.
inline constexpr std::int64_t kWriterShare = 16 << 20;

struct SavePlan {
  struct Weight {
    const ParameterSpec* spec;
    int writer;
  };
  struct Moment {
    const ParameterSpec* spec;
    int writer;  // writes all elements of which it keeps the moments
  };
  std::vector<Weight> weights;  // in the order of the table
  std::vector<Moment> moments;  // the same, with one or more per parameter that learns

  // Bytes that each rank writes: in all, and of moments.
  std::vector<std::int64_t> bytes, moment_bytes;

  // The ranks that write weights, and those that write moments, ascending.
  std::vector<int> weight_writers() const { return writers(weights); }
  std::vector<int> moment_writers() const { return writers(moments); }

 private:
  template <class Parts>
  static std::vector<int> writers(const Parts& parts) {
    std::vector<int> ranks;
    for (const auto& part : parts) ranks.push_back(part.writer);
    std::ranges::sort(ranks);
    ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
    return ranks;
  }
};

namespace save_plan_detail {

// Gives each part to the rank that has the fewest bytes so far.
class Dealer {
 public:
  explicit Dealer(int ranks) : bytes_(static_cast<std::size_t>(ranks)) {}

  const std::vector<std::int64_t>& bytes() const { return bytes_; }

  int deal(const std::vector<int>& candidates, std::int64_t bytes) {
    const int rank = *std::ranges::min_element(
        candidates, {}, [&](int r) { return bytes_[static_cast<std::size_t>(r)]; });
    bytes_[static_cast<std::size_t>(rank)] += bytes;
    return rank;
  }

 private:
  std::vector<std::int64_t> bytes_;
};

// Ranks that together write `bytes` bytes, at least `share` each if there are several.
inline std::vector<int> spread_writers(int ranks, std::int64_t bytes, std::int64_t share) {
  const auto count = static_cast<int>(
      std::clamp<std::int64_t>(bytes / std::max<std::int64_t>(1, share), 1, ranks));
  std::vector<int> writers;
  for (int i = 0; i < count; ++i) writers.push_back(i * ranks / count);
  return writers;
}

// The ranks that keep the same moments of a parameter: those of the shard with this index on this
// tensor rank, or on all tensor ranks if `tensor` is negative.
inline std::vector<int> ranks_with_shard(const Mesh& mesh, int pipeline, int shard, int shards,
                                         int tensor) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.ranks; ++rank) {
    const bool has_shard = shards == 1 || mesh.shard_rank(rank) == shard;
    const bool has_tensor = tensor < 0 || mesh.tensor_rank(rank) == tensor;
    if (mesh.pipeline_rank(rank) == pipeline && has_shard && has_tensor) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace save_plan_detail

// `saves(spec)`: whether the weights of a parameter are saved as a tensor of the model. `share`: as
// kWriterShare, which is the value outside tests.
template <class Saves>
SavePlan plan_save(const ParameterTable& table, const ShardLayout& layout, const Mesh& mesh,
                   std::int64_t share, const Saves& saves) {
  using namespace save_plan_detail;
  SavePlan plan;
  plan.moment_bytes.resize(static_cast<std::size_t>(mesh.ranks));
  Dealer dealer(mesh.ranks);
  std::int64_t weight_bytes = 0;
  for (const ParameterSpec& spec : table.specs()) {
    if (saves(spec)) weight_bytes += 4 * spec.size();
  }
  const std::vector<int> writers = spread_writers(mesh.ranks, weight_bytes, share);
  for (const ParameterSpec& spec : table.specs()) {
    if (!saves(spec)) continue;
    std::vector<int> nearby;
    for (const int rank : writers) {
      if (mesh.pipeline_rank(rank) == spec.first_holder) nearby.push_back(rank);
    }
    plan.weights.push_back(
        {&spec, dealer.deal(nearby.empty() ? writers : nearby, 4 * spec.size())});
  }
  for (const ParameterSpec& spec : table.specs()) {
    if (!spec.trainable) continue;
    const int tensor_ranks = spec.part.split ? mesh.tensor_ranks : 1;
    for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
      const LocalParameter local =
          tensor_ranks == 1 ? spec.part : spec.local({tensor, mesh.tensor_ranks});
      for (int shard = 0; shard < layout.shards(); ++shard) {
        const std::int64_t size = layout.values_of(spec, local, shard).size;
        if (size == 0) continue;
        const std::vector<int> holders = ranks_with_shard(
            mesh, spec.first_holder, shard, layout.shards(), tensor_ranks == 1 ? -1 : tensor);
        const int writer = dealer.deal(holders, 8 * size);
        plan.moments.push_back({&spec, writer});
        plan.moment_bytes[static_cast<std::size_t>(writer)] += 8 * size;
      }
    }
  }
  plan.bytes = dealer.bytes();
  return plan;
}

}  // namespace llmc
