#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/channel_scale.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

// Blocks of kRowsPerBlock rows.
template <class T>
__global__ void channel_scale_kernel(T* out, const T* inp, const T* scale, std::int64_t rows,
                                     std::int64_t N, std::int64_t first) {
  constexpr int kWidth = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    for_each_row_vector<kWidth>(N, [&](std::int64_t c) {
      Floats<kWidth> x = load_floats<kWidth>(inp + row * N + c);
      if (c >= first) x *= load_floats<kWidth>(scale + (c - first));
      store_vec(out + row * N + c, from_floats<T>(x));
    });
  });
}

template <class T>
void channel_scale_forward(Tensor<T, 2> out, In<T, 2> inp, In<T, 1> scale, std::int64_t first,
                           Stream& stream) {
  const ProfileScope scope("channel scale", stream, memory_traffic(out, inp));
  const std::int64_t rows = out.shape[0], N = out.shape[1];
  require_vector_rows("channel_scale_forward", N);
  require(0 <= first && first % 8 == 0 && first < N,
          "channel_scale_forward: the first column is no multiple of 8, or outside the row");
  check_shape("inp", inp, {rows, N});
  check_shape("scale", scale, {N - first});
  if (rows == 0) return;
  launch(channel_scale_kernel<T>, Grid{ceil_div(rows, std::int64_t{kRowsPerBlock}), 1, 1},
         row_block_threads<T>(N), 0, stream, out.data, inp.data, scale.data, rows, N, first);
}

std::int64_t channel_scale_backward_scratch(std::int64_t rows, std::int64_t N) {
  return bias_gradient_scratch(rows, N);
}

// Block (tile of columns, slab of rows): partials[slab][c] = sum over the slab's rows of the
// products in column first + c.
template <class T>
__global__ void scale_gradient_kernel(float* partials, const T* d_out, const T* inp,
                                      std::int64_t rows, std::int64_t N, std::int64_t first) {
  const std::int64_t rows_per_slab = ceil_div(rows, grid_y());
  const std::int64_t begin = block_y() * rows_per_slab;
  const std::int64_t remaining = rows - begin, columns = N - first;
  float* partial = partials + block_y() * columns;
  block_sum_of_columns<T>(
      columns, block_x(), remaining < rows_per_slab ? remaining : rows_per_slab,
      [=]<int W>(std::int64_t i, std::int64_t c) {
        const std::int64_t at = (begin + i) * N + first + c;
        return load_floats<W>(d_out + at) * load_floats<W>(inp + at);
      },
      [=](std::int64_t c, float sum) { partial[c] = sum; });
}

template <class T>
void channel_scale_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_scale, In<T, 2> d_out,
                            In<T, 2> inp, In<T, 1> scale, std::int64_t first,
                            Tensor<float, 1> scratch, Stream& stream) {
  const std::int64_t rows = d_out.shape[0], N = d_out.shape[1], columns = N - first;
  require(0 <= first && first % 8 == 0 && first < N,
          "channel_scale_backward: the first column is no multiple of 8, or outside the row");
  check_shape("scale", scale, {columns});
  if (rows == 0) return;
  if (d_scale.data != nullptr) {
    const ProfileScope scope("channel scale gradient", stream, memory_traffic(d_out, inp));
    check_shape("d_scale", d_scale, {columns});
    check_shape("inp", inp, {rows, N});
    require_vector_rows("channel_scale_backward", columns);
    const std::int64_t slabs = bias_gradient_scratch(rows, N) / N;
    require_scratch("channel_scale_backward", scratch, slabs * columns);
    const int threads = column_sum_threads(ceil_div(rows, slabs), 256);
    launch(scale_gradient_kernel<T>, Grid{ceil_div(columns, kColumnTile<T>), slabs, 1}, threads,
           column_sum_shared<T>(threads), stream, scratch.data, d_out.data, inp.data, rows, N,
           first);
    add_partial_sums(d_scale.data, nullptr, scratch.data, slabs, columns, stream);
  }
  if (d_inp.data != nullptr) channel_scale_forward<T>(d_inp, d_out, scale, first, stream);
}

LLMC_INSTANTIATE(channel_scale_forward)
LLMC_INSTANTIATE(channel_scale_backward)

}  // namespace llmc
