// Activations that the forward pass of a micro-batch stores for its backward pass. Each micro-batch
// in flight needs its own object; buffers that successive passes share are in workspace.h. Without
// training nothing is kept: all blocks share the same buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/rows.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/norm.h"
#include "llmc/nn/self_attention.h"
#include "llmc/nn/stage.h"
#include "llmc/nn/tensor_group.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

// `own` are the rows of the residual stream that this rank has; the other tensors have all rows
// (B*T), and the columns of this rank: those of its NH heads of HS channels, and its H hidden
// channels. On one rank, own is B*T and NH HS is C; H is 4C unless the config has another size.
template <class T>
struct BlockActivations : AttentionActivations<T> {
  Tensor<T, 2> input;              // (own, C) the residual stream on entry
  Tensor<T, 2> ln_1;               // (own, C)
  NormStatistics ln_1_statistics;  // (own)
  Tensor<T, 2> residual_mid;       // (own, C) the residual stream after attention
  Tensor<T, 2> ln_2;               // (own, C)
  NormStatistics ln_2_statistics;  // (own)
  Tensor<T, 2> fc;                 // (B*T, H) hidden layer of the MLP, before the activation
  Tensor<T, 2> gelu;               // (B*T, H) after it

  // Returns views of the same memory for a batch of fewer rows. log_sum_exp and probabilities stay
  // as they are: SelfAttention sets their shapes from the batch.
  BlockActivations first(const RankRows& rows) const {
    BlockActivations view = *this;
    for (Tensor<T, 2>* tensor : {&view.input, &view.ln_1, &view.residual_mid, &view.ln_2}) {
      *tensor = first_rows(*tensor, rows.own);
    }
    for (Tensor<T, 2>* tensor : {&view.qkv, &view.attention, &view.fc, &view.gelu}) {
      *tensor = first_rows(*tensor, rows.all);
    }
    for (NormStatistics* norm : {&view.ln_1_statistics, &view.ln_2_statistics}) {
      *norm = {first_rows(norm->mean, rows.own), first_rows(norm->rstd, rows.own)};
    }
    return view;
  }
};

template <class T>
class Activations {
 public:
  // Those of a stage. Reserves memory in the plan; usable after plan.allocate().
  Activations(const ModelConfig& config, const RunShape& run, const Stage& stage,
              const TensorGroup& group, MemoryPlan& plan) {
    const char* segment = "activations";
    const std::int64_t rows = group.rows_of_rank(run.rows()).stored, C = config.channels;
    blocks_.resize(run.training ? static_cast<std::size_t>(stage.blocks()) : 1);
    for (BlockActivations<T>& block : blocks_) reserve(block, config, run, group, plan);
    plan.reserve(segment, residual_out_, rows, C);
    if (!stage.head) return;
    plan.reserve(segment, ln_f_, rows, C);
    plan.reserve(segment, ln_f_statistics_.mean, rows);
    plan.reserve(segment, ln_f_statistics_.rstd, rows);
    plan.reserve("logits", losses_, run.rows());
  }
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // The functions below return views for a batch.
  // Block `index` of the stage.
  BlockActivations<T> block(std::int64_t index, const RankRows& rows) const {
    return blocks_[blocks_.size() == 1 ? 0 : static_cast<std::size_t>(index)].first(rows);
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
  static void reserve(BlockActivations<T>& block, const ModelConfig& config, const RunShape& run,
                      const TensorGroup& group, MemoryPlan& plan) {
    const char* segment = "activations";
    const std::int64_t rows = run.rows(), own = group.rows_of_rank(rows).stored,
                       C = config.channels;
    const std::int64_t heads = config.heads / group.ranks(), width = heads * config.head_size();
    plan.reserve(segment, block.input, own, C);
    plan.reserve(segment, block.ln_1, own, C);
    plan.reserve(segment, block.ln_1_statistics.mean, own);
    plan.reserve(segment, block.ln_1_statistics.rstd, own);
    plan.reserve(segment, block.qkv, rows, 3 * width);
    plan.reserve(segment, block.attention, rows, width);
    plan.reserve(segment, block.log_sum_exp, rows * heads);
    if (run.attention == Attention::standard) {
      plan.reserve("attention matrices", block.probabilities, rows * heads * run.T);
    }
    plan.reserve(segment, block.residual_mid, own, C);
    plan.reserve(segment, block.ln_2, own, C);
    plan.reserve(segment, block.ln_2_statistics.mean, own);
    plan.reserve(segment, block.ln_2_statistics.rstd, own);
    const std::int64_t H = config.hidden_size() / group.ranks();
    plan.reserve(segment, block.fc, rows, H);
    plan.reserve(segment, block.gelu, rows, H);
  }

  std::vector<BlockActivations<T>> blocks_;
  Tensor<T, 2> residual_out_;       // (own, C)
  Tensor<T, 2> ln_f_;               // (own, C)
  NormStatistics ln_f_statistics_;  // (own)
  Tensor<float, 1> losses_;         // (B*T)
};

}  // namespace llmc
