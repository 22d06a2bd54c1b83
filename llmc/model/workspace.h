// Buffers that forward and backward passes reuse, shared by all micro-batches.
#pragma once

#include <cstdint>

#include "llmc/device/rows.h"
#include "llmc/model/activations.h"

namespace llmc {

template <class T>
class Workspace {
 public:
  // Reserves memory in the plan; usable after plan.allocate().
  Workspace(const Gpt2Config& config, const RunShape& run, MemoryPlan& plan) {
    const std::int64_t rows = run.rows(), C = config.channels;
    plan.reserve("activations", branch_, rows, C);
    plan.reserve("logits", logits_, run.chunk_rows(), config.padded_vocabulary());
    if (!run.training) return;
    plan.reserve("backward buffers", d_residual_, rows, C);
    plan.reserve("backward buffers", d_btc_, rows, C);
    plan.reserve("backward buffers", d_bt4c_, rows, 4 * C);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // (chunk, Vp) logits of a chunk of rows, then their gradients.
  Tensor<T, 2> logits() const { return logits_; }

  // The functions below return views for a batch of `rows` rows.

  // (rows, C) the output of the last branch, not yet added to the residual stream.
  Tensor<T, 2> branch(std::int64_t rows) const { return first_rows(branch_, rows); }
  // (rows, C) the gradient of the residual stream at the current point of the backward pass.
  Tensor<T, 2> d_residual(std::int64_t rows) const { return first_rows(d_residual_, rows); }
  // Gradients inside a block: (rows, C), and (rows, columns) with at most 4C columns.
  Tensor<T, 2> d_btc(std::int64_t rows) const { return first_rows(d_btc_, rows); }
  Tensor<T, 2> d_bt4c(std::int64_t rows, std::int64_t columns) const {
    return {d_bt4c_.data, {rows, columns}};
  }

 private:
  Tensor<T, 2> branch_;      // (B*T, C)
  Tensor<T, 2> logits_;      // (chunk, Vp)
  Tensor<T, 2> d_residual_;  // (B*T, C)
  Tensor<T, 2> d_btc_;       // (B*T, C)
  Tensor<T, 2> d_bt4c_;      // (B*T, 4C)
};

}  // namespace llmc
