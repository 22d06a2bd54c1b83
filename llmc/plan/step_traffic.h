// The bytes that a rank sends in a step: formulae, which equal what its communicators count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "llmc/comm/mesh.h"
#include "llmc/device/math.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/plan/tensor_traffic.h"

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
  // To ranks of the pipeline.
  GroupTraffic messages;          // activations to the next stage, gradients to the one before
  GroupTraffic shared_embedding;  // all-reduce of the gradient of a tied wte
  GroupTraffic pipeline_scalars;  // all-reduce of partial sums of the norm, and of the loss

  bool operator==(const StepTraffic&) const = default;
  GroupTraffic data() const { return gradients + weights + scalars; }
  GroupTraffic tensor() const { return activations + copied_gradients + tensor_scalars; }
  GroupTraffic pipeline() const { return messages + shared_embedding + pipeline_scalars; }
  std::int64_t all() const { return data().all() + tensor().all() + pipeline().all(); }
};

// Number of times that a rank gathers each block of weights in a step under stage 3: what
// WeightBuckets does if passes acquire blocks in the order of Gpt2. A step begins without gathered
// blocks. One slot is for the embeddings and an untied head; of the two slots for others, a block
// takes the one that was not used for longest.
class BlockGathers {
 public:
  // `layers` of the whole model.
  BlockGathers(std::int64_t layers, const ParameterTable& table)
      : gathers_(static_cast<std::size_t>(layers) + (table.tied_head() ? 2 : 3)),
        final_(layers + 1),
        head_(table.head().block),
        first_learning_(table.first_learning_block()) {}

  // A pass acquires a block and, ahead, the next one.
  void forward(const Stage& stage) {
    if (stage.embedding) use_tokens(0);
    if (stage.embedding) use(stage.first + 1);
    for (std::int64_t block = stage.first + 1; block <= stage.end; ++block) {
      use(block);
      if (block < stage.end) use(block + 1);
    }
    if (stage.head) use(final_);
  }
  void backward(const Stage& stage) {
    if (stage.head) {
      use_tokens(head_);
      use(final_);
      if (first_learning_ <= stage.end) use(stage.end);
    }
    const std::int64_t lowest = std::max(stage.first + 1, first_learning_);
    for (std::int64_t block = stage.end; block >= lowest; --block) {
      use(block);
      if (block > lowest) use(block - 1);
    }
  }
  // By block.
  const std::vector<std::int64_t>& counts() const { return gathers_; }

 private:
  void use_tokens(std::int64_t block) {
    if (block != tokens_) ++gathers_[static_cast<std::size_t>(block)];
    tokens_ = block;
  }
  void use(std::int64_t block) {
    if (block == newer_) return;
    if (block != older_) ++gathers_[static_cast<std::size_t>(block)];
    older_ = std::exchange(newer_, block);
  }

  std::vector<std::int64_t> gathers_;
  std::int64_t final_, head_;             // the blocks of the final norm and of the head
  std::int64_t first_learning_;           // the lowest block of the backward pass
  std::int64_t tokens_ = -1;              // the block in the slot for embeddings and head
  std::int64_t older_ = -1, newer_ = -1;  // the blocks in the slots, by their last use
};

// Calls forward(stage, micro_batch) and backward(stage, micro_batch) for the passes of a pipeline
// rank in a step, in their order.
template <class Forward, class Backward>
void for_each_pass(const Pipeline& pipeline, int rank, std::int64_t layers,
                   std::int64_t micro_batches, const Forward& forward, const Backward& backward) {
  const std::vector<Stage> stages = stages_of(pipeline, rank, layers);
  if (pipeline.single()) {
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      forward(stages[0], i);
      backward(stages[0], i);
    }
    return;
  }
  for (const PipelinePass& pass : pipeline.passes(rank)) {
    const Stage& stage = stages[static_cast<std::size_t>(pass.stage / pipeline.shape.ranks)];
    pass.kind == PassKind::forward ? forward(stage, pass.micro_batch)
                                   : backward(stage, pass.micro_batch);
  }
}

// The numbers of gathers of a pipeline rank with these stages.
inline std::vector<std::int64_t> gathers_of_blocks(const Pipeline& pipeline, int rank,
                                                   std::int64_t layers, const ParameterTable& table,
                                                   std::int64_t micro_batches) {
  BlockGathers gathers(layers, table);
  for_each_pass(
      pipeline, rank, layers, micro_batches,
      [&](const Stage& stage, std::int64_t) { gathers.forward(stage); },
      [&](const Stage& stage, std::int64_t) { gathers.backward(stage); });
  return gathers.counts();
}

// The traffic of rank `rank` of the mesh. `run.B` sequences of `run.T` tokens per micro-batch.
// `size`: bytes of a weight or an activation in the dtype of the model.
class StepTrafficOf {
 public:
  StepTrafficOf(const ModelConfig& config, const RunShape& run, const Mesh& mesh, int rank,
                std::int64_t micro_batches, std::int64_t size)
      : config_(config),
        run_(run),
        mesh_(mesh),
        place_{mesh.tensor_rank(rank), mesh.tensor_ranks, mesh.pipeline_rank(rank)},
        micro_batches_(micro_batches),
        size_(size),
        table_(gpt2_parameters(config, place_, run)),
        layout_(table_, run.zero_stage, mesh.shard_ranks, mesh.shard_rank(rank)),
        stages_(stages_of(run.pipeline, place_.pipeline_rank, config.layers)) {}

  StepTraffic traffic() const {
    StepTraffic traffic;
    add_buckets(traffic);
    const std::int64_t N = mesh_.data_ranks(), shards = layout_.shards();
    traffic.scalars.all_reduce = bytes_sent(2 * kFloat, N);
    if (shards > 1) {
      traffic.scalars.all_gather =
          bytes_sent(kFloat * squared_norm_count(layout_.trainable_shard_size()) * shards, shards);
    }
    if (mesh_.tensor_ranks > 1) add_tensor_group(traffic);
    if (mesh_.pipeline_ranks > 1) add_pipeline(traffic);
    return traffic;
  }

 private:
  static constexpr std::int64_t kFloat = sizeof(float);

  void add_buckets(StepTraffic& traffic) const {
    const std::int64_t shards = layout_.shards();
    const std::int64_t replicas = shards > 1 ? mesh_.replicas() : mesh_.data_ranks();
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      traffic.gradients.reduce_scatter += reductions() * bytes_sent(kFloat * bucket.stored, shards);
      traffic.gradients.all_reduce +=
          reductions() * bytes_sent(2 * kFloat * bucket.piece, replicas);
      if (run_.uses_sequence_parallelism(mesh_.tensor_ranks)) {
        traffic.copied_gradients.all_reduce +=
            reductions() * bytes_sent(2 * kFloat * bucket.copied, mesh_.tensor_ranks);
      }
      if (layout_.shards_weights()) continue;
      traffic.weights.all_gather += bytes_sent(size_ * bucket.stored, shards);
    }
    if (layout_.shards_weights()) add_gathered_weights(traffic);
  }
  // Passes gather frozen weights too.
  void add_gathered_weights(StepTraffic& traffic) const {
    const std::vector<std::int64_t> gathers = gathers_of_blocks(
        run_.pipeline, place_.pipeline_rank, config_.layers, table_, micro_batches_);
    for (std::size_t block = 0; block < gathers.size(); ++block) {
      for (const Bucket* bucket : layout_.held_buckets(block)) {
        traffic.weights.all_gather +=
            gathers[block] * bytes_sent(size_ * bucket->stored, layout_.shards());
      }
    }
  }
  std::int64_t reductions() const { return layout_.shards_gradients() ? micro_batches_ : 1; }

  void add_tensor_group(StepTraffic& traffic) const {
    const int t = mesh_.tensor_ranks;
    for (const Stage& stage : stages_) {
      const TensorTraffic passes(config_, run_, stage, run_.rows(), t, size_);
      traffic.activations +=
          (passes.forward() + passes.recompute() + passes.backward()) * micro_batches_ +
          passes.scales();
    }
    traffic.tensor_scalars.all_gather = bytes_sent(kFloat * partials() * t, t);
  }

  // A message has the rows of the residual stream that a tensor rank has.
  void add_pipeline(StepTraffic& traffic) const {
    const std::int64_t p = mesh_.pipeline_ranks;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const auto number = static_cast<int>(i) * run_.pipeline.shape.ranks + place_.pipeline_rank;
      count += (stages_[i].head ? 0 : 1) + (number > run_.pipeline.first_backward ? 1 : 0);
    }
    traffic.messages.message = count * micro_batches_ * size_ * own_rows() * config_.channels;
    const ParameterSpec& wte = table_.find("wte.weight");
    if (wte.is_held && wte.trainable && table_.tied_head()) {
      traffic.shared_embedding.all_reduce = bytes_sent(2 * kFloat * layout_.own_part(wte).size, 2);
    }
    traffic.pipeline_scalars.all_reduce =
        bytes_sent(2 * kFloat, p) + bytes_sent(2 * kFloat * partials(), p);
  }
  std::int64_t own_rows() const {
    const std::int64_t rows = run_.rows(), t = mesh_.tensor_ranks;
    if (!run_.uses_sequence_parallelism(t)) return rows;
    const std::int64_t stored = ceil_div(rows, t);
    return std::clamp<std::int64_t>(rows - place_.tensor_rank * stored, 0, stored);
  }
  std::int64_t partials() const { return squared_norm_count(table_.trainable_size()); }

  ModelConfig config_;
  RunShape run_;
  Mesh mesh_;
  MeshPlace place_;
  std::int64_t micro_batches_, size_;
  ParameterTable table_;
  ShardLayout layout_;
  std::vector<Stage> stages_;
};

inline StepTraffic step_traffic(const ModelConfig& config, const RunShape& run, const Mesh& mesh,
                                std::int64_t micro_batches, std::int64_t size, int rank = 0) {
  return StepTrafficOf(config, run, mesh, rank, micro_batches, size).traffic();
}

}  // namespace llmc
