// Activations that the forward pass of a micro-batch stores for its backward pass. Each micro-batch
// in flight needs its own object; buffers that successive passes share are in workspace.h. Without
// training nothing is kept: all blocks share the same buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/config/gpt2_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/rows.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/gemm/linear.h"
#include "llmc/ops/layernorm.h"

namespace llmc {

// Mean and reciprocal standard deviation of each row, as the LayerNorm computed them.
struct NormStatistics {
  Tensor<float, 1> mean, rstd;  // (B*T)
};

template <class T>
struct BlockActivations {
  Tensor<T, 2> input;              // (B*T, C) the residual stream on entry
  Tensor<T, 2> ln_1;               // (B*T, C)
  NormStatistics ln_1_statistics;  // (B*T)
  Tensor<T, 2> qkv;                // (B*T, 3C)
  Tensor<T, 2> attention;          // (B*T, C)
  Tensor<float, 1> log_sum_exp;    // (B*NH*T)
  Tensor<T, 1> probabilities;      // (B*NH*T*T), only for standard attention
  Tensor<T, 2> residual_mid;       // (B*T, C) the residual stream after attention
  Tensor<T, 2> ln_2;               // (B*T, C)
  NormStatistics ln_2_statistics;  // (B*T)
  Tensor<T, 2> fc;                 // (B*T, 4C) hidden layer of the MLP, before GELU
  Tensor<T, 2> gelu;               // (B*T, 4C)

  // Returns views of the same memory for a batch of fewer rows. log_sum_exp and probabilities stay
  // as they are: SelfAttention sets their shapes from the batch.
  BlockActivations first(std::int64_t rows) const {
    BlockActivations view = *this;
    for (Tensor<T, 2>* tensor : {&view.input, &view.ln_1, &view.qkv, &view.attention,
                                 &view.residual_mid, &view.ln_2, &view.fc, &view.gelu}) {
      *tensor = first_rows(*tensor, rows);
    }
    for (NormStatistics* norm : {&view.ln_1_statistics, &view.ln_2_statistics}) {
      *norm = {first_rows(norm->mean, rows), first_rows(norm->rstd, rows)};
    }
    return view;
  }
};

template <class T>
class Activations {
 public:
  // Reserves memory in the plan; usable after plan.allocate().
  Activations(const Gpt2Config& config, const RunShape& run, MemoryPlan& plan) {
    const char* segment = "activations";
    const std::int64_t rows = run.rows(), C = config.channels;
    blocks_.resize(run.training ? static_cast<std::size_t>(config.layers) : 1);
    for (BlockActivations<T>& block : blocks_) reserve(block, config, run, plan);
    plan.reserve(segment, residual_out_, rows, C);
    plan.reserve(segment, ln_f_, rows, C);
    plan.reserve(segment, ln_f_statistics_.mean, rows);
    plan.reserve(segment, ln_f_statistics_.rstd, rows);
    plan.reserve("logits", losses_, rows);
  }
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // The functions below return views for a batch of `rows` rows.
  BlockActivations<T> block(std::int64_t layer, std::int64_t rows) const {
    return blocks_[blocks_.size() == 1 ? 0 : static_cast<std::size_t>(layer)].first(rows);
  }
  // (rows, C) the final residual stream and its normalised form; (rows) the statistics of that
  // norm.
  Tensor<T, 2> residual_out(std::int64_t rows) const { return first_rows(residual_out_, rows); }
  Tensor<T, 2> final_hidden(std::int64_t rows) const { return first_rows(ln_f_, rows); }
  NormStatistics final_statistics(std::int64_t rows) const {
    return {first_rows(ln_f_statistics_.mean, rows), first_rows(ln_f_statistics_.rstd, rows)};
  }
  Tensor<float, 1> losses(std::int64_t rows) const { return first_rows(losses_, rows); }

 private:
  static void reserve(BlockActivations<T>& block, const Gpt2Config& config, const RunShape& run,
                      MemoryPlan& plan) {
    const char* segment = "activations";
    const std::int64_t rows = run.rows(), C = config.channels;
    plan.reserve(segment, block.input, rows, C);
    plan.reserve(segment, block.ln_1, rows, C);
    plan.reserve(segment, block.ln_1_statistics.mean, rows);
    plan.reserve(segment, block.ln_1_statistics.rstd, rows);
    plan.reserve(segment, block.qkv, rows, 3 * C);
    plan.reserve(segment, block.attention, rows, C);
    plan.reserve(segment, block.log_sum_exp, rows * config.heads);
    if (run.attention == Attention::standard) {
      plan.reserve("attention matrices", block.probabilities, rows * config.heads * run.T);
    }
    plan.reserve(segment, block.residual_mid, rows, C);
    plan.reserve(segment, block.ln_2, rows, C);
    plan.reserve(segment, block.ln_2_statistics.mean, rows);
    plan.reserve(segment, block.ln_2_statistics.rstd, rows);
    plan.reserve(segment, block.fc, rows, 4 * C);
    plan.reserve(segment, block.gelu, rows, 4 * C);
  }

  std::vector<BlockActivations<T>> blocks_;
  Tensor<T, 2> residual_out_;       // (B*T, C)
  Tensor<T, 2> ln_f_;               // (B*T, C)
  NormStatistics ln_f_statistics_;  // (B*T)
  Tensor<float, 1> losses_;         // (B*T)
};

}  // namespace llmc
