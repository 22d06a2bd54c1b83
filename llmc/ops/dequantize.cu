#include "llmc/device/device.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/dequantize.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T>
__global__ void dequantize_kernel(T* out, const std::int8_t* codes, const float* scales,
                                  ScaleAxis axis, std::int64_t rows, std::int64_t C) {
  constexpr int N = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      const Vec<std::int8_t, N> code = load_vec<N>(codes + row * C + c);
      Vec<T, N> x;
      for (int k = 0; k < N; ++k) {
        const float scale = axis == ScaleAxis::rows ? scales[row] : scales[c + k];
        x[k] = from_float<T>(scale * static_cast<float>(code[k]));
      }
      store_vec(out + row * C + c, x);
    });
  });
}

template <class T>
void dequantize(Tensor<T, 2> out, Tensor<const std::int8_t, 2> codes, In<float, 1> scales,
                ScaleAxis axis, Stream& stream) {
  const ProfileScope scope("dequantize", stream, memory_traffic(out, codes));
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("dequantize", C);
  check_shape("codes", codes, {rows, C});
  check_shape("scales", scales, {axis == ScaleAxis::rows ? rows : C});
  launch(dequantize_kernel<T>, Grid{ceil_div(rows, std::int64_t{kRowsPerBlock}), 1, 1},
         row_block_threads<T>(C), 0, stream, out.data, codes.data, scales.data, axis, rows, C);
}

LLMC_INSTANTIATE(dequantize)

}  // namespace llmc
