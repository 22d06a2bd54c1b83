// Buffers that forward and backward passes reuse, shared by all micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/rows.h"
#include "llmc/models/gpt2/activations.h"
#include "llmc/nn/logits_buffers.h"

namespace llmc {

template <class T>
class Workspace {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). A row of this rank's logits has
  // `logit_columns` numbers; 0: it computes none. `has_backward`: whether the rank has backward
  // passes.
  Workspace(const ModelConfig& config, const RunShape& run, const TensorGroup& group,
            std::int64_t logit_columns, bool has_backward, MemoryPlan& plan)
      : channels_(config.channels) {
    const std::int64_t rows = run.rows(), C = config.channels;
    const std::int64_t own = group.rows_of_rank(rows).stored * C, split = rows * C / group.ranks();
    plan.reserve("activations", branch_, own);
    head_.reserve(run, group, logit_columns, plan);
    if (!has_backward) return;
    plan.reserve("backward buffers", d_residual_, own);
    plan.reserve("backward buffers", d_btc_, std::max(own, split));
    const std::int64_t widest = std::max(3 * C, config.hidden_size());
    plan.reserve("backward buffers", d_wide_, std::max(own, rows * widest / group.ranks()));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  const LogitsBuffers<T>& head() const { return head_; }

  // The functions below return views for a batch of which this rank has `rows` rows.

  // (own, C) the output of the last branch, not yet added to the residual stream.
  Tensor<T, 2> branch(const RankRows& rows) const { return own_rows(branch_, rows); }
  // (own, C) the gradient of the residual stream at the current point of the backward pass.
  Tensor<T, 2> d_residual(const RankRows& rows) const { return own_rows(d_residual_, rows); }
  // Gradients inside a block: (own, C), or with all rows and the columns of this rank; d_wide has
  // at most as many as qkv or the hidden layer.
  Tensor<T, 2> d_btc(const RankRows& rows) const { return own_rows(d_btc_, rows); }
  Tensor<T, 2> d_btc(const RankRows& rows, std::int64_t columns) const {
    return {d_btc_.data, {rows.all, columns}};
  }
  Tensor<T, 2> d_wide(const RankRows& rows) const { return own_rows(d_wide_, rows); }
  Tensor<T, 2> d_wide(const RankRows& rows, std::int64_t columns) const {
    return {d_wide_.data, {rows.all, columns}};
  }

 private:
  Tensor<T, 2> own_rows(const Tensor<T, 1>& buffer, const RankRows& rows) const {
    return {buffer.data, {rows.own, channels_}};
  }

  std::int64_t channels_;
  LogitsBuffers<T> head_;
  Tensor<T, 1> branch_, d_residual_, d_btc_, d_wide_;
};

}  // namespace llmc
