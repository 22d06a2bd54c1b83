// The arguments that all layers share in one forward or backward pass of a batch.
#pragma once

#include <cstdint>

#include "llmc/model/context.h"
#include "llmc/model/device_batch.h"
#include "llmc/model/pass_options.h"
#include "llmc/ops/dropout.h"

namespace llmc {

struct Pass {
  const DeviceBatch& batch;
  const PassOptions& options;
  Context& context;

  std::int64_t rows() const { return batch.rows(); }

  // Returns a view of (rows, C) as (B, T, C).
  template <class X>
  Tensor<X, 3> batched(const Tensor<X, 2>& tensor) const {
    return {tensor.data, {batch.B, batch.T, tensor.shape[1]}};
  }

  // Applies dropout to x (rows, C) in place.
  template <class X>
  void drop(Tensor<X, 2> x, const Dropout& dropout) const {
    if (dropout.enabled()) apply_dropout<X>(x, x, batch.T, dropout, context.stream);
  }
};

}  // namespace llmc
