// Partial sums of the gradient norm, gathered from the ranks of a shard group, in the order of the
// parameter table. The norm then has the same bits for every number of ranks.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// out[i] (i < count) = partial sum i of a bucket. Rank r owns the partial sums r * per_rank to
// (r + 1) * per_rank - 1 of it, which begin at gathered[r * stride]. The bucket's padding has no
// place in `out`.
void partials_in_order(float* out, const float* gathered, std::int64_t count, std::int64_t per_rank,
                       std::int64_t stride, Stream& stream);

}  // namespace llmc
