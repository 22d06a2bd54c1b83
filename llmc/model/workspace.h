// Buffers that forward and backward passes reuse, shared by all micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/rows.h"
#include "llmc/model/activations.h"

namespace llmc {

template <class T>
class Workspace {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). A row of this rank's logits has
  // `logit_columns` numbers; 0: it computes none.
  Workspace(const Gpt2Config& config, const RunShape& run, const TensorGroup& group,
            std::int64_t logit_columns, MemoryPlan& plan)
      : channels_(config.channels) {
    const std::int64_t rows = run.rows(), C = config.channels;
    const std::int64_t own = group.share(rows).stored * C, split = rows * C / group.ranks();
    plan.reserve("activations", branch_, own);
    if (logit_columns > 0) plan.reserve("logits", logits_, run.chunk_rows(), logit_columns);
    if (logit_columns > 0 && group.ranks() > 1) {
      const std::int64_t slices = group.ranks();
      plan.reserve("logits", row_logits_, slices * logit_columns);
      plan.reserve("logits", statistics_, 3, run.chunk_rows());
      plan.reserve("logits", all_statistics_, slices, 3, run.chunk_rows());
    }
    if (!run.training) return;
    plan.reserve("backward buffers", d_residual_, own);
    plan.reserve("backward buffers", d_btc_, std::max(own, split));
    plan.reserve("backward buffers", d_bt4c_, std::max(own, 4 * split));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // (chunk, columns) logits of a chunk of rows, then their gradients.
  Tensor<T, 2> logits() const { return logits_; }
  // The logits of one row in the slices of all ranks of a tensor group, if there are several.
  Tensor<T, 1> row_logits() const { return row_logits_; }
  // The statistics of a chunk of rows (classifier_slices.h): of this rank's slice of the
  // vocabulary, and of all slices.
  Tensor<float, 2> statistics(std::int64_t rows) const { return {statistics_.data, {3, rows}}; }
  Tensor<float, 3> all_statistics(std::int64_t rows) const {
    return {all_statistics_.data, {all_statistics_.shape[0], 3, rows}};
  }

  // The functions below return views for a batch of which this rank has `rows` rows.

  // (own, C) the output of the last branch, not yet added to the residual stream.
  Tensor<T, 2> branch(const RowShare& rows) const { return own_rows(branch_, rows); }
  // (own, C) the gradient of the residual stream at the current point of the backward pass.
  Tensor<T, 2> d_residual(const RowShare& rows) const { return own_rows(d_residual_, rows); }
  // Gradients inside a block: (own, C), or with all rows and the columns of this rank; d_bt4c has
  // at most as many as the hidden layer.
  Tensor<T, 2> d_btc(const RowShare& rows) const { return own_rows(d_btc_, rows); }
  Tensor<T, 2> d_btc(const RowShare& rows, std::int64_t columns) const {
    return {d_btc_.data, {rows.all, columns}};
  }
  Tensor<T, 2> d_bt4c(const RowShare& rows) const { return own_rows(d_bt4c_, rows); }
  Tensor<T, 2> d_bt4c(const RowShare& rows, std::int64_t columns) const {
    return {d_bt4c_.data, {rows.all, columns}};
  }

 private:
  Tensor<T, 2> own_rows(const Tensor<T, 1>& buffer, const RowShare& rows) const {
    return {buffer.data, {rows.own, channels_}};
  }

  std::int64_t channels_;
  Tensor<T, 2> logits_;
  Tensor<T, 1> row_logits_;
  Tensor<float, 2> statistics_;
  Tensor<float, 3> all_statistics_;
  Tensor<T, 1> branch_, d_residual_, d_btc_, d_bt4c_;
};

}  // namespace llmc
