// Activations that the forward pass of a micro-batch stores for its backward pass. Each micro-batch
// in flight needs its own object; buffers that successive passes share are in workspace.h. Blocks
// without a backward pass share the same buffers: all of them without training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/rows.h"
#include "llmc/models/gpt2/block_activations.h"
#include "llmc/models/gpt2/offloaded_blocks.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/norm.h"
#include "llmc/nn/stage.h"
#include "llmc/nn/tensor_group.h"

namespace llmc {

// The values of the present block that no block keeps, for all micro-batches of a rank.
template <class T>
struct RecomputeBuffers {
  // Reserves memory in the plan; usable after plan.allocate().
  RecomputeBuffers(const ModelConfig& config, const RunShape& run, const KeptBlocks& kept,
                   const TensorGroup& group, MemoryPlan& plan) {
    if (!run.training) return;
    BlockReservation<T>(config, run, kept, group, plan).shared(block, run.recompute);
  }
  RecomputeBuffers(const RecomputeBuffers&) = delete;
  RecomputeBuffers& operator=(const RecomputeBuffers&) = delete;

  BlockActivations<T> block;
};

template <class T>
class Activations {
 public:
  // Those of any of these stages, one at a time. Reserves memory in the plan; usable after
  // plan.allocate(). `recomputed` and `offloaded` must outlive the object.
  Activations(const ModelConfig& config, const RunShape& run, const std::vector<Stage>& stages,
              const KeptBlocks& kept, const TensorGroup& group,
              const RecomputeBuffers<T>& recomputed, OffloadedBlocks<T>& offloaded,
              MemoryPlan& plan)
      : recomputed_(recomputed), offloaded_(offloaded) {
    const char* segment = "activations";
    const std::int64_t rows = group.rows_of_rank(run.rows()).stored, C = config.channels;
    std::int64_t places = 1;
    for (const Stage& stage : stages) places = std::max(places, kept.places(stage));
    if (OffloadedBlocks<T>::is_used(run)) {
      offloaded.reserve(store_, run, places, plan);
    } else {
      const BlockReservation<T> reservation(config, run, kept, group, plan);
      blocks_.resize(static_cast<std::size_t>(places));
      for (std::int64_t i = 0; i < places; ++i) {
        reservation.kept(blocks_[static_cast<std::size_t>(i)],
                         run.training ? run.recompute_of(i) : Recompute::none);
      }
    }
    plan.reserve(segment, residual_out_, rows, C);
    if (!std::ranges::any_of(stages, &Stage::head)) return;
    plan.reserve(segment, ln_f_, rows, C);
    plan.reserve(segment, ln_f_statistics_.mean, rows);
    plan.reserve(segment, ln_f_statistics_.rstd, rows);
    plan.reserve("logits", losses_, run.rows());
  }
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // ---- blocks, by their place in a stage (KeptBlocks) ----

  // Call this before the forward pass of a block, or before its input is written; after it, if a
  // backward pass follows; and before its backward pass, where `next` is the place of the next one,
  // or negative. They move activations that are offloaded.
  void enter(std::int64_t place) {
    if (store_.store) offloaded_.enter(store_, place);
  }
  void leave(std::int64_t place) {
    if (store_.store) offloaded_.leave(store_, place);
  }
  void bring(std::int64_t place, std::int64_t next) {
    if (store_.store) offloaded_.bring(store_, place, next);
  }

  // The functions below return views for a batch.
  // What the block does not keep is valid until another block is used.
  BlockActivations<T> block(std::int64_t place, const RankRows& rows) const {
    return kept(place).completed_with(recomputed_.block).first(rows);
  }
  // (own, C) the residual stream after the last block. A stage without head needs it only until it
  // has been sent.
  Tensor<T, 2> residual_out(const RankRows& rows) const {
    return first_rows(residual_out_, rows.own);
  }
  // A stage with head has (own, C) the normalised form, and (own) the statistics of that norm.
  Tensor<T, 2> final_hidden(const RankRows& rows) const { return first_rows(ln_f_, rows.own); }
  NormStatistics final_statistics(const RankRows& rows) const {
    return {first_rows(ln_f_statistics_.mean, rows.own),
            first_rows(ln_f_statistics_.rstd, rows.own)};
  }
  // (B*T)
  Tensor<float, 1> losses(const RankRows& rows) const { return first_rows(losses_, rows.all); }

 private:
  const BlockActivations<T>& kept(std::int64_t place) const {
    if (store_.store) return offloaded_.view(store_, place);
    return blocks_[static_cast<std::size_t>(place)];
  }

  const RecomputeBuffers<T>& recomputed_;
  OffloadedBlocks<T>& offloaded_;
  BlockStore store_;  // empty: the blocks are on the device
  std::vector<BlockActivations<T>> blocks_;
  Tensor<T, 2> residual_out_;       // (own, C)
  Tensor<T, 2> ln_f_;               // (own, C)
  NormStatistics ln_f_statistics_;  // (own)
  Tensor<float, 1> losses_;         // (B*T)
};

}  // namespace llmc
