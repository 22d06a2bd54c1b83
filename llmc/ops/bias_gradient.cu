#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

// Number of slabs of rows: enough for up to about a thousand blocks to share the reads, but few
// enough that writing the partial sums costs little.
std::int64_t bias_gradient_slabs(std::int64_t M, std::int64_t N) {
  const std::int64_t tiles = ceil_div(N, 256);
  return std::clamp<std::int64_t>(ceil_div(M, 64), 1, std::max<std::int64_t>(1, 1024 / tiles));
}

std::int64_t bias_gradient_scratch(std::int64_t M, std::int64_t N) {
  return bias_gradient_slabs(M, N) * N;
}

// Block (tile of columns, slab of rows): partials[slab][c] = sum of the slab's rows.
template <class T>
__global__ void bias_gradient_kernel(float* partials, const T* d_out, std::int64_t M,
                                     std::int64_t N) {
  const std::int64_t rows_per_slab = ceil_div(M, grid_y());
  const std::int64_t first = block_y() * rows_per_slab;
  const std::int64_t remaining_rows = M - first;  // the last slabs may be short or empty
  float* partial = partials + block_y() * N;
  block_column_sum<T>(
      d_out, N, N, block_x(), remaining_rows < rows_per_slab ? remaining_rows : rows_per_slab,
      [=](std::int64_t i) { return first + i; },
      [=](std::int64_t c, float sum) { partial[c] = sum; });
}

template <class T>
void bias_gradient(Tensor<float, 1> d_bias, In<T, 2> d_out, Tensor<float, 1> scratch,
                   Stream& stream) {
  if (d_bias.data == nullptr) return;
  const ProfileScope scope("bias gradient", stream, memory_traffic(d_out));
  const std::int64_t M = d_out.shape[0], N = d_out.shape[1];
  check_shape("d_bias", d_bias, {N});
  require_vector_rows("bias_gradient", N);
  if (M == 0) return;
  const std::int64_t slabs = bias_gradient_slabs(M, N);
  require_scratch("bias_gradient", scratch, slabs * N);
  const int threads = column_sum_threads(ceil_div(M, slabs), 256);
  launch(bias_gradient_kernel<T>, Grid{ceil_div(N, kColumnTile<T>), slabs, 1}, threads,
         column_sum_shared<T>(threads), stream, scratch.data, d_out.data, M, N);
  add_partial_sums(d_bias.data, nullptr, scratch.data, slabs, N, stream);
}

LLMC_INSTANTIATE(bias_gradient)

}  // namespace llmc
