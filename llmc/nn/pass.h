// The arguments that all layers share in one forward or backward pass of a batch.
#pragma once

#include <cstdint>

#include "llmc/nn/context.h"
#include "llmc/nn/device_batch.h"
#include "llmc/nn/pass_options.h"
#include "llmc/ops/dropout.h"

namespace llmc {

struct Pass {
  Pass(const DeviceBatch& batch, const PassOptions& options, Context& context)
      : batch(batch),
        options(options),
        context(context),
        rows(context.tensor.rows_of_rank(batch.rows())) {}

  const DeviceBatch& batch;
  const PassOptions& options;
  Context& context;
  const RankRows rows;

  // Returns a view of (rows, C) as (B, T, C).
  template <class X>
  Tensor<X, 3> batched(const Tensor<X, 2>& tensor) const {
    return {tensor.data, {batch.B, batch.T, tensor.shape[1]}};
  }

  // out (own rows, C) = x with dropout, which must be enabled; out may be x.
  template <class X>
  void drop(Tensor<X, 2> out, In<X, 2> x, Dropout dropout) const {
    dropout.first_row = rows.first;
    apply_dropout<X>(out, x, batch.T, dropout, context.stream);
  }
  // Applies dropout to x (own rows, C) in place, if it is enabled.
  template <class X>
  void drop(Tensor<X, 2> x, const Dropout& dropout) const {
    if (dropout.enabled()) drop<X>(x, x, dropout);
  }
};

}  // namespace llmc
