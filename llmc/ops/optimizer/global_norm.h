// The global gradient norm, the clipping factor, and the check that a step is finite.
//
// A tensor's squares are summed in fixed pieces of 1024 elements, one partial sum per piece, on
// whatever rank the piece is. The partial sums of all tensors, in tensor order, are then added in
// one fixed order. So the norm has the same bits if shards cut the tensors between any two pieces.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/optimizer/optimizer_state.h"

namespace llmc {

inline constexpr std::int64_t kNormPiece = 1024;

// Number of partial sums that squared_norm_partials writes for n elements.
std::int64_t squared_norm_count(std::int64_t n);

// partials[j] = sum of squares of x[1024 j .. min(1024 (j+1), n)) for j < squared_norm_count(n). x
// is aligned to 16 bytes. A shard passes its part of a tensor, cut at multiples of 1024, and its
// part of the tensor's partial sums.
template <class T>
void squared_norm_partials(float* partials, const T* x, std::int64_t n, Stream& stream);

// Adds `count` partial sums, those of all tensors in order, and writes gradient_norm,
// gradient_scale, step_loss_scale, finite and overflowed of the state. The gradients are
// state->loss_scale times the true ones (0: not scaled). gradient_norm is the norm of the true
// ones. gradient_scale unscales the gradients and clips their norm to max_norm; 0 or less disables
// clipping. loss is one unscaled number in device memory that must be finite too, or null.
void finish_global_norm(OptimizerState* state, const float* partials, std::int64_t count,
                        float max_norm, const float* loss, Stream& stream);

}  // namespace llmc
