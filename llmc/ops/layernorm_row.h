// LayerNorm of a row, for the kernels of layernorm.h and of the products that normalise their rows.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/row_team.h"

namespace llmc {

// ---- forward -------------------------------------------------------------------------------

// Writes the normalised row x from its statistics.
template <class T, class Layout>
__device__ __forceinline__ void store_normalised(T* out, const TeamRow<T, Layout>& x, float mean,
                                                 float rstd, const T* weight, const T* bias,
                                                 const RowTeam<Layout>& team, std::int64_t C) {
  constexpr int N = Layout::kVector;
  for (int i = 0; i < team.chunks(C); ++i) {
    if (!team.has_chunk(i, C)) continue;
    const std::int64_t c = team.channel(i);
    const Floats<N> w = load_floats<N>(weight + c);
    const Floats<N> b = load_floats<N>(bias + c);
    const Floats<N> z = rstd * (x.chunk(i) - mean);
    store_floats(out + c, multiply_add(z, w, b));
  }
}

// Normalises the row x, whose numbers are stored already. All fused operations are explicit, so a
// team of one thread computes the same bits wherever this is inlined: INT8 inference normalises in
// its products and needs the codes of training.
template <class T, class Layout>
__device__ __forceinline__ void normalise_row(T* out, float* mean_out, float* rstd_out,
                                              const TeamRow<T, Layout>& x, const T* weight,
                                              const T* bias, float eps, const RowTeam<Layout>& team,
                                              std::int64_t C) {
  constexpr int N = Layout::kVector;
  ThreadSum<N> sum;
  for (int i = 0; i < team.chunks(C); ++i) {
    if (!team.has_chunk(i, C)) continue;
    sum.add(x.chunk(i));
  }
  const float mean = team.sum(sum.total()) / static_cast<float>(C);

  ThreadSum<N> squares;
  for (int i = 0; i < team.chunks(C); ++i) {
    if (!team.has_chunk(i, C)) continue;
    const Floats<N> difference = x.chunk(i) - mean;
    squares.add_product(difference, difference);
  }
  const float rstd = 1.0f / std::sqrt(team.sum(squares.total()) / static_cast<float>(C) + eps);

  store_normalised(out, x, mean, rstd, weight, bias, team, C);
  if (team.is_leader()) {
    *mean_out = mean;
    *rstd_out = rstd;
  }
}

}  // namespace llmc
