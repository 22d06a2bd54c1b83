// The buffers of the head, shared by all micro-batches: the logits of a chunk of rows, and what
// tensor ranks exchange of them.
#pragma once

#include <cstdint>

#include "llmc/config/run_shape.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/tensor_group.h"

namespace llmc {

template <class T>
class LogitsBuffers {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). A row of this rank's logits has
  // `columns` numbers; 0: it computes none. The object must not move.
  void reserve(const RunShape& run, const TensorGroup& group, std::int64_t columns,
               MemoryPlan& plan) {
    if (columns == 0) return;
    plan.reserve("logits", logits_, run.chunk_rows(), columns);
    if (group.ranks() == 1) return;
    const std::int64_t slices = group.ranks();
    plan.reserve("logits", row_logits_, slices * columns);
    plan.reserve("logits", statistics_, 3, run.chunk_rows());
    plan.reserve("logits", all_statistics_, slices, 3, run.chunk_rows());
  }

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

 private:
  Tensor<T, 2> logits_;
  Tensor<T, 1> row_logits_;
  Tensor<float, 2> statistics_;
  Tensor<float, 3> all_statistics_;
};

}  // namespace llmc
