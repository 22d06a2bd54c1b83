// What the forward pass leaves for the backward pass, and the buffers both work in. Without
// training nothing is kept: all blocks work in the same buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/config/gpt2_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/gemm/linear.h"
#include "llmc/ops/layernorm.h"

namespace llmc {

// The first n rows: a batch may be smaller than the buffers.
template <class T>
Tensor<T, 2> first_rows(Tensor<T, 2> tensor, std::int64_t n) {
  return {tensor.data, {n, tensor.shape[1]}};
}
template <class T>
Tensor<T, 1> first_rows(Tensor<T, 1> tensor, std::int64_t n) {
  return {tensor.data, {n}};
}

// Rows [first, first + n).
template <class T>
Tensor<T, 2> some_rows(Tensor<T, 2> tensor, std::int64_t first, std::int64_t n) {
  return {tensor.data + first * tensor.shape[1], {n, tensor.shape[1]}};
}
template <class T>
Tensor<T, 1> some_rows(Tensor<T, 1> tensor, std::int64_t first, std::int64_t n) {
  return {tensor.data + first, {n}};
}

template <class T>
struct BlockActivations {
  Tensor<T, 2> input;                     // (B*T, C) the residual stream on entry
  Tensor<T, 2> ln_1;                      // (B*T, C)
  Tensor<float, 1> ln_1_mean, ln_1_rstd;  // (B*T)
  Tensor<T, 2> qkv;                       // (B*T, 3C)
  Tensor<T, 2> attention;                 // (B*T, C)
  Tensor<float, 1> log_sum_exp;           // (B*NH*T)
  Tensor<T, 1> probabilities;             // (B*NH*T*T), of standard attention
  Tensor<T, 2> middle;                    // (B*T, C) the residual stream after attention
  Tensor<T, 2> ln_2;                      // (B*T, C)
  Tensor<float, 1> ln_2_mean, ln_2_rstd;  // (B*T)
  Tensor<T, 2> hidden;                    // (B*T, 4C) of the MLP, before GELU
  Tensor<T, 2> gelu;                      // (B*T, 4C)
};

template <class T>
struct Activations {
  std::vector<BlockActivations<T>> blocks;  // one of each block; without training one for all
  Tensor<T, 2> branch;  // (B*T, C) what a block's last branch adds to the residual
  Tensor<T, 2> final;   // (B*T, C) the residual stream at the end
  Tensor<T, 2> ln_f;    // (B*T, C)
  Tensor<float, 1> ln_f_mean, ln_f_rstd;  // (B*T)
  Tensor<T, 2> logits;                    // (chunk, Vp) logits, then their gradients
  Tensor<float, 1> losses;                // (B*T)

  // Of the backward pass.
  Tensor<T, 2> d_residual;  // (B*T, C)
  Tensor<T, 2> d_narrow;    // (B*T, C)
  Tensor<T, 2> d_wide;      // (B*T, 4C)
  Tensor<float, 1> scratch;

  BlockActivations<T>& block(std::int64_t l) {
    return blocks[blocks.size() == 1 ? 0 : static_cast<std::size_t>(l)];
  }

  void reserve(MemoryPlan& plan, const Gpt2Config& config, const RunShape& run) {
    reserve_blocks(plan, config, run);
    const char* segment = "activations";
    const std::int64_t rows = run.rows(), C = config.channels;
    plan.reserve(segment, branch, rows, C);
    plan.reserve(segment, final, rows, C);
    plan.reserve(segment, ln_f, rows, C);
    plan.reserve(segment, ln_f_mean, rows);
    plan.reserve(segment, ln_f_rstd, rows);
    plan.reserve("logits", logits, run.chunk_rows(), config.padded_vocabulary());
    plan.reserve("logits", losses, rows);
    if (!run.training) return;
    plan.reserve("backward buffers", d_residual, rows, C);
    plan.reserve("backward buffers", d_narrow, rows, C);
    plan.reserve("backward buffers", d_wide, rows, 4 * C);
    plan.reserve("backward buffers", scratch, scratch_size(config, run));
  }

 private:
  void reserve_blocks(MemoryPlan& plan, const Gpt2Config& config, const RunShape& run) {
    const char* segment = "activations";
    const std::int64_t rows = run.rows(), C = config.channels;
    blocks.resize(run.training ? static_cast<std::size_t>(config.layers) : 1);
    for (BlockActivations<T>& block : blocks) {
      plan.reserve(segment, block.input, rows, C);
      plan.reserve(segment, block.ln_1, rows, C);
      plan.reserve(segment, block.ln_1_mean, rows);
      plan.reserve(segment, block.ln_1_rstd, rows);
      plan.reserve(segment, block.qkv, rows, 3 * C);
      plan.reserve(segment, block.attention, rows, C);
      plan.reserve(segment, block.log_sum_exp, rows * config.heads);
      if (run.attention == Attention::standard) {
        plan.reserve("attention matrices", block.probabilities, rows * config.heads * run.T);
      }
      plan.reserve(segment, block.middle, rows, C);
      plan.reserve(segment, block.ln_2, rows, C);
      plan.reserve(segment, block.ln_2_mean, rows);
      plan.reserve(segment, block.ln_2_rstd, rows);
      plan.reserve(segment, block.hidden, rows, 4 * C);
      plan.reserve(segment, block.gelu, rows, 4 * C);
    }
  }

  static std::int64_t attention_scratch(const Gpt2Config& config, const RunShape& run) {
    return run.attention == Attention::flash
               ? flash_attention_backward_scratch(run.B, run.T, config.heads, config.head_size())
               : standard_attention_backward_scratch(run.B, run.T, config.heads);
  }

  // One scratch serves all ops in turn. Smaller batches never want more than the largest one.
  static std::int64_t scratch_size(const Gpt2Config& config, const RunShape& run) {
    const std::int64_t rows = run.rows(), C = config.channels;
    return std::max({layernorm_backward_scratch(rows, C), linear_backward_scratch(rows, C),
                     linear_backward_scratch(rows, 3 * C), linear_backward_scratch(rows, 4 * C),
                     attention_scratch(config, run)});
  }
};

}  // namespace llmc
