#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/quantize.h"
#include "llmc/ops/vocabulary_slice.h"

namespace llmc {

// N numbers of a row of wte plus those of a row of wpe. `scale` is null, or that of the row of wte,
// which is then quantized: one rounding of scale * code + position.
template <int N, class T>
__device__ __forceinline__ Floats<N> token_plus_position(const T* token, const T* position,
                                                         const float* scale) {
  const Floats<N> x = load_floats<N>(token), p = load_floats<N>(position);
  if (scale == nullptr) return x + p;
  const Floats<N> scales(*scale);
  return fused_multiply_add(symmetric_codes(x, scales), scales, p);
}

// kRowsPerBlock rows per block. Sequences begin at first_position, or at 0 if it is null. `scales`
// is null, or has one number per row of wte.
template <class T>
__global__ void embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* wte,
                                         const float* scales, const T* wpe,
                                         const std::int32_t* first_position, VocabularySlice slice,
                                         std::int64_t rows, std::int64_t C, std::int64_t T_seq) {
  constexpr int N = kRowVector<T>;
  for_each_block_row(rows, [&](std::int64_t row) {
    const std::int64_t token = tokens[row];
    if (!slice.holds(token)) {
      // -0 and not 0: -0 + x has the bits of x for every x, including -0.
      for_each_row_vector<N>(
          C, [&](std::int64_t c) { store_floats(out + row * C + c, Floats<N>(-0.0f)); });
      return;
    }
    const T* token_row = wte + slice.index_of(token) * C;
    const float* scale = scales == nullptr ? nullptr : scales + slice.index_of(token);
    const std::int64_t first = first_position == nullptr ? 0 : first_position[row / T_seq];
    const T* position_row = wpe + (first + row % T_seq) * C;
    for_each_row_vector<N>(C, [&](std::int64_t c) {
      store_floats(out + row * C + c,
                   token_plus_position<N>(token_row + c, position_row + c, scale));
    });
  });
}

// Block (distinct token, tile of channels). The warps share the bucket's rows, so that a frequent
// token is not one long chain of additions.
template <class T>
__global__ void token_gradient_kernel(float* d_wte, const T* d_out, TokenBucketsView buckets,
                                      VocabularySlice slice, std::int64_t C) {
  const std::int64_t bucket = block_x();
  const std::int64_t token = buckets.token[bucket];
  if (!slice.holds(token)) return;
  const std::int64_t start = buckets.start[bucket];
  const std::int32_t* position = buckets.position + start;
  float* d_token_row = d_wte + slice.index_of(token) * C;
  block_column_sum<T>(
      d_out, C, C, block_y(), buckets.start[bucket + 1] - start,
      [=](std::int64_t i) { return static_cast<std::int64_t>(position[i]); },
      [=](std::int64_t c, float sum) { d_token_row[c] += sum; });
}

// Block j has rows j, j + T_seq, j + 2 T_seq, ... of d_out, which have the same position: one row
// more than `whole` if j < rest. first_position is the position of block 0. Each thread adds its
// channels over the rows, in order.
template <class T>
__global__ void position_gradient_kernel(float* d_wpe, const T* d_out, std::int64_t whole,
                                         std::int64_t rest, std::int64_t first_position,
                                         std::int64_t T_seq, std::int64_t C) {
  constexpr int N = kRowVector<T>;
  const std::int64_t t = first_position + block_x();
  const std::int64_t count = whole + (block_x() < rest ? 1 : 0);
  float* d_position_row = d_wpe + (t < T_seq ? t : t - T_seq) * C;
  for_each_row_vector<N>(C, [&](std::int64_t c) {
    Floats<N> sum;
    for (std::int64_t b = 0; b < count; ++b) {
      sum += load_floats<N>(d_out + (b * T_seq + block_x()) * C + c);
    }
    float* d = d_position_row + c;
    store_floats(d, load_floats<N>(d) + sum);
  });
}

template <class T>
void embedding_forward(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, In<T, 2> wte,
                       In<T, 2> wpe, std::int64_t T_seq, VocabularySlice slice, Stream& stream,
                       const std::int32_t* first_position, In<float, 1> scales) {
  const ProfileScope scope("embedding forward", stream);
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("embedding_forward", C);
  check_shape("tokens", tokens, {rows});
  check_shape("wte", wte, {wte.shape[0], C});
  if (scales.data != nullptr) check_shape("scales", scales, {wte.shape[0]});
  check_shape("wpe", wpe, {wpe.shape[0], C});
  check_vocabulary_slice("embedding_forward", slice, wte.shape[0]);
  require(T_seq > 0 && rows % T_seq == 0,
          "embedding_forward: the number of rows is not a multiple of the sequence length");
  require(T_seq <= wpe.shape[0], "embedding_forward: sequences are longer than the context");
  launch(embedding_forward_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
         row_block_threads<T>(C), 0, stream, out.data, tokens.data, wte.data, scales.data, wpe.data,
         first_position, slice, rows, C, T_seq);
}

template <class T>
void token_embedding_backward(Tensor<float, 2> d_wte, In<T, 2> d_out, TokenBucketsView buckets,
                              VocabularySlice slice, Stream& stream) {
  if (d_wte.data == nullptr) return;
  const std::int64_t C = d_out.shape[1];
  require_vector_rows("token_embedding_backward", C);
  check_shape("d_wte", d_wte, {d_wte.shape[0], C});
  check_vocabulary_slice("token_embedding_backward", slice, d_wte.shape[0]);
  if (d_out.shape[0] == 0) return;
  constexpr int kThreads = cooperating_threads(256);
  launch(token_gradient_kernel<T>, Grid{buckets.count, ceil_div(C, kColumnTile<T>), 1}, kThreads,
         column_sum_shared<T>(kThreads), stream, d_wte.data, d_out.data, buckets, slice, C);
}

template <class T>
void position_embedding_backward(Tensor<float, 2> d_wpe, In<T, 2> d_out, std::int64_t first_row,
                                 std::int64_t T_seq, Stream& stream) {
  if (d_wpe.data == nullptr) return;
  const std::int64_t n = d_out.shape[0], C = d_out.shape[1];
  require_vector_rows("position_embedding_backward", C);
  check_shape("d_wpe", d_wpe, {d_wpe.shape[0], C});
  require(first_row >= 0, "position_embedding_backward: the first row is negative");
  require(T_seq > 0 && T_seq <= d_wpe.shape[0],
          "position_embedding_backward: sequences are empty or longer than the context");
  launch(position_gradient_kernel<T>, Grid{std::min(n, T_seq), 1, 1}, row_block_threads<T>(C), 0,
         stream, d_wpe.data, d_out.data, n / T_seq, n % T_seq, first_row % T_seq, T_seq, C);
}

LLMC_INSTANTIATE(embedding_forward)
LLMC_INSTANTIATE(token_embedding_backward)
LLMC_INSTANTIATE(position_embedding_backward)

}  // namespace llmc
