// Partial sums of the gradient norm, gathered from the ranks of a shard group, in the order of the
// parameter table. The norm then has the same bits for every number of ranks.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

template <class = void>
__global__ void partials_in_order_kernel(float* out, const float* gathered, std::int64_t count,
                                         std::int64_t per_rank, std::int64_t stride) {
  const std::int64_t i = global_thread();
  if (i < count) out[i] = gathered[i / per_rank * stride + i % per_rank];
}

// out[i] (i < count) = partial sum i of a bucket. Rank r owns the partial sums r * per_rank to
// (r + 1) * per_rank - 1 of it, which begin at gathered[r * stride]. The bucket's padding has no
// place in `out`.
inline void partials_in_order(float* out, const float* gathered, std::int64_t count,
                              std::int64_t per_rank, std::int64_t stride, Stream& stream) {
  launch_elementwise<1>(partials_in_order_kernel<>, count, stream, out, gathered, count, per_rank,
                        stride);
}

}  // namespace llmc
