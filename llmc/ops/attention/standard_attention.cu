#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/dropout.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

// One matrix per head: element (i, j) of (batch row b, head h) is at
// data[b * batch + h * head + i * row + j * column]. A transposed view swaps row and column.
template <class T>
struct HeadMatrix {
  T* data;
  std::int64_t batch, head, row, column;

  __host__ __device__ HeadMatrix transposed() const { return {data, batch, head, column, row}; }
  __device__ T* head_data(std::int64_t b, std::int64_t h) const {
    return data + b * batch + h * head;
  }
};

// Fills a tile with factor(i, j) times the elements (i, j) = (i0 + r, j0 + c) of an (I, J) matrix,
// and with zeros beyond it. Neighbouring threads read neighbouring memory in both orientations of
// the matrix.
template <class Tile, class T, class Factor>
__device__ __forceinline__ void load_matrix(const Tile& tile, const T* data,
                                            const HeadMatrix<const T>& matrix, std::int64_t i0,
                                            std::int64_t j0, std::int64_t I, std::int64_t J,
                                            const Factor& factor) {
  const bool column_major = matrix.row == 1;
  for (int n = bounded_fma_thread(); n < Tile::kRows * Tile::kColumns; n += kFmaThreads) {
    const int r = column_major ? n % Tile::kRows : n / Tile::kColumns;
    const int c = column_major ? n / Tile::kRows : n % Tile::kColumns;
    const bool in_bounds = i0 + r < I && j0 + c < J;
    tile.row(r)[c] = in_bounds
                         ? factor(i0 + r, j0 + c) *
                               to_float(data[(i0 + r) * matrix.row + (j0 + c) * matrix.column])
                         : 0.0f;
  }
}

inline constexpr int kHeadMatmulTile = 64;
inline constexpr int kHeadMatmulDepth = 32;
using HeadMatmulLeft = PaddedTile<kHeadMatmulTile, kHeadMatmulDepth>;
using HeadMatmulRight = PaddedTile<kHeadMatmulDepth, kHeadMatmulTile>;

// The part of a product a b that dropout acts on: nothing, a as (query, key), a as (key, query), or
// the product as (query, key).
enum class DropoutOperand { none, left, left_transposed, product };

// c (I, J) = factor * a (I, K) b (K, J) for each head. With row_dot (B, NH, padded I), instead
// c_ij = factor * c_ij * ((a b)_ij - row_dot_i), which replaces probabilities by score gradients in
// place. Grid (column tiles, row tiles, B * NH).
template <class T, DropoutOperand kDropout>
__global__ void head_matmul_kernel(HeadMatrix<T> c, HeadMatrix<const T> a, HeadMatrix<const T> b,
                                   const float* row_dot, std::int64_t NH, std::int64_t I,
                                   std::int64_t J, std::int64_t K, float factor, Dropout dropout) {
  SharedMemory shared;
  const HeadMatmulLeft left{shared.take<float>(HeadMatmulLeft::kElements)};
  const HeadMatmulRight right{shared.take<float>(HeadMatmulRight::kElements)};

  const std::int64_t batch = block_z() / NH;
  const std::int64_t head = block_z() % NH;
  const std::int64_t i0 = block_y() * kHeadMatmulTile;
  const std::int64_t j0 = block_x() * kHeadMatmulTile;
  DropoutMask mask{};
  if constexpr (kDropout != DropoutOperand::none) mask = dropout.row_mask(batch);
  const auto left_factor = [=](std::int64_t i, std::int64_t j) {
    if constexpr (kDropout == DropoutOperand::left) return mask.factor_at(i, j, head);
    if constexpr (kDropout == DropoutOperand::left_transposed) return mask.factor_at(j, i, head);
    return 1.0f;
  };
  const auto one = [](std::int64_t, std::int64_t) { return 1.0f; };
  FmaBlock<kHeadMatmulTile, kHeadMatmulTile> sum;
  for (std::int64_t k0 = 0; k0 < K; k0 += kHeadMatmulDepth) {
    block_barrier();  // the previous tiles have been read
    load_matrix(left, a.head_data(batch, head), a, i0, k0, I, K, left_factor);
    load_matrix(right, b.head_data(batch, head), b, k0, j0, K, J, one);
    block_barrier();
    multiply_add(sum, left, right, kHeadMatmulDepth);
  }

  T* out = c.head_data(batch, head);
  for (int r = 0; r < sum.R; ++r) {
    const std::int64_t i = i0 + sum.row(r);
    for (int g = 0; g < sum.G; ++g) {
      PhiloxBits draw[kFmaWidth / 4] = {};
      if constexpr (kDropout == DropoutOperand::product) {
        for (int n = 0; n < kFmaWidth; n += 4) {
          draw[n / 4] = mask.bits(i, (j0 + sum.column(g) + n) / 4, head);
        }
      }
      for (int n = 0; n < kFmaWidth; ++n) {
        const std::int64_t j = j0 + sum.column(g) + n;
        if (i >= I || j >= J) continue;
        T* element = out + i * c.row + j * c.column;
        const float dropout_factor =
            kDropout == DropoutOperand::product ? mask.factor(draw[n / 4].words[n % 4]) : 1.0f;
        float value = factor * sum.v[r][g][n];
        if (row_dot != nullptr) {
          const float dot = row_dot[block_z() * padded_rows(I) + i];
          value = factor * to_float(*element) * (dropout_factor * sum.v[r][g][n] - dot);
        }
        *element = from_float<T>(value);
      }
    }
  }
}

// Replaces scores by probabilities, which are zero if the query does not see the key. A warp
// processes a row (b, h, i) of length T. Every lane reads and writes the same keys throughout: a
// shuffle does not order one lane's reads before another's writes.
template <class T>
__global__ void causal_softmax_kernel(T* scores, float* lse, const std::int32_t* doc_start,
                                      AttentionShape shape) {
  const std::int64_t row = block_x() * warps_per_block() + warp_index();
  if (row >= shape.B * shape.NH * shape.T) return;
  const std::int64_t query = row % shape.T;
  const std::int64_t b = row / (shape.NH * shape.T);
  const std::int64_t first = doc_start == nullptr ? 0 : doc_start[b * shape.T + query];
  T* s = scores + row * shape.T;

  float max_score = kMinusInfinity;
  for (std::int64_t j = lane(); j <= query; j += kWarp) {
    if (j >= first) max_score = std::fmax(max_score, to_float(s[j]));
  }
  max_score = warp_max(max_score);
  float sum = 0.0f;
  for (std::int64_t j = lane(); j <= query; j += kWarp) {
    if (j >= first) sum += std::exp(to_float(s[j]) - max_score);
  }
  sum = warp_sum(sum);
  for (std::int64_t j = lane(); j < shape.T; j += kWarp) {
    const bool visible = j >= first && j <= query;
    s[j] = from_float<T>(visible ? std::exp(to_float(s[j]) - max_score) / sum : 0.0f);
  }
  if (lane() == 0) lse[row] = max_score + std::log(sum);
}

template <DropoutOperand kDropout, class T>
void launch_head_matmul(HeadMatrix<T> c, std::type_identity_t<HeadMatrix<const T>> a,
                        std::type_identity_t<HeadMatrix<const T>> b, const float* row_dot,
                        const AttentionShape& shape, std::int64_t I, std::int64_t J, std::int64_t K,
                        float factor, const Dropout& dropout, Stream& stream) {
  constexpr std::size_t kBytes = SharedLayout()
                                     .add<float>(HeadMatmulLeft::kElements)
                                     .add<float>(HeadMatmulRight::kElements)
                                     .bytes();
  launch(head_matmul_kernel<T, kDropout>,
         Grid{ceil_div(J, kHeadMatmulTile), ceil_div(I, kHeadMatmulTile), shape.B * shape.NH},
         kFmaThreads, kBytes, stream, c, a, b, row_dot, shape.NH, I, J, K, factor, dropout);
}

// The (T, HS) matrices of the heads in a packed tensor: part 0 is q, 1 is k, 2 is v.
template <class T>
HeadMatrix<T> packed_heads(T* qkv, const AttentionShape& shape, int part) {
  return {qkv + part * shape.C(), shape.T * shape.qkv_stride(), shape.HS, shape.qkv_stride(), 1};
}
// The same for out (B, T, C), and for the (T, T) matrices of probabilities.
template <class T>
HeadMatrix<T> out_heads(T* out, const AttentionShape& shape) {
  return {out, shape.T * shape.C(), shape.HS, shape.C(), 1};
}
template <class T>
HeadMatrix<T> square_heads(T* matrix, const AttentionShape& shape) {
  return {matrix, shape.NH * shape.T * shape.T, shape.T * shape.T, shape.T, 1};
}

// launch_head_matmul, with dropout if it is on.
template <DropoutOperand kDropout, class T, class... Arguments>
void launch_dropout_matmul(const Dropout& dropout, HeadMatrix<T> c, Arguments&&... arguments) {
  dispatch_dropout(dropout, [&]<bool kEnabled>() {
    launch_head_matmul<kEnabled ? kDropout : DropoutOperand::none>(c, arguments...);
  });
}

template <class T>
void standard_attention_probabilities(Out<T, 4> probabilities, Tensor<float, 3> lse, In<T, 3> qkv,
                                      std::int64_t NH, const std::int32_t* doc_start,
                                      Stream& stream, std::optional<float> scale) {
  const std::int64_t B = qkv.shape[0], T_ = qkv.shape[1], C = qkv.shape[2] / 3;
  const AttentionShape shape = check_attention("qkv", In<T, 3>{qkv.data, {B, T_, C}}, NH);
  check_shape("qkv", qkv, {B, T_, 3 * C});
  check_shape("lse", lse, {B, NH, T_});
  check_shape("probabilities", probabilities, {B, NH, T_, T_});
  launch_head_matmul<DropoutOperand::none>(
      square_heads(probabilities.data, shape), packed_heads(qkv.data, shape, 0),
      packed_heads(qkv.data, shape, 1).transposed(), nullptr, shape, T_, T_, shape.HS,
      attention_scale(shape, scale), Dropout{}, stream);
  constexpr int kThreads = 128;
  launch(causal_softmax_kernel<T>, Grid{ceil_div(B * NH * T_, kThreads / kWarp), 1, 1}, kThreads, 0,
         stream, probabilities.data, lse.data, doc_start, shape);
}

template <class T>
void standard_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, Out<T, 4> probabilities,
                                In<T, 3> qkv, std::int64_t NH, const std::int32_t* doc_start,
                                Stream& stream, const Dropout& dropout,
                                std::optional<float> scale) {
  const ProfileScope scope("attention forward", stream);
  const AttentionShape shape = check_attention("out", out, NH);
  standard_attention_probabilities<T>(probabilities, lse, qkv, NH, doc_start, stream, scale);
  const auto p_read = square_heads<const T>(probabilities.data, shape);
  launch_dropout_matmul<DropoutOperand::left>(dropout, out_heads(out.data, shape), p_read,
                                              packed_heads(qkv.data, shape, 2), nullptr, shape,
                                              shape.T, shape.HS, shape.T, 1.0f, dropout, stream);
}

std::int64_t standard_attention_backward_scratch(std::int64_t B, std::int64_t T, std::int64_t NH) {
  return row_terms_floats(B, T, NH);
}

template <class T>
void standard_attention_backward(Tensor<T, 3> d_qkv, Out<T, 4> probabilities, In<T, 3> d_out,
                                 In<T, 3> qkv, In<T, 3> out, In<float, 3> lse, std::int64_t NH,
                                 Tensor<float, 1> scratch, Stream& stream, const Dropout& dropout,
                                 std::optional<float> scale) {
  const ProfileScope scope("attention backward", stream);
  const AttentionShape shape = check_attention("out", out, NH);
  const std::int64_t T_ = shape.T;
  check_shape("d_out", d_out, {shape.B, T_, shape.C()});
  check_shape("d_qkv", d_qkv, {shape.B, T_, 3 * shape.C()});
  check_shape("qkv", qkv, {shape.B, T_, 3 * shape.C()});
  check_shape("lse", lse, {shape.B, NH, T_});
  check_shape("probabilities", probabilities, {shape.B, NH, T_, T_});
  check_alignment("d_out", d_out.data);
  check_row_terms_scratch(scratch, shape);

  const RowTerms terms =
      compute_row_terms(scratch.data, out.data, d_out.data, lse.data, shape, stream);
  const auto p = square_heads(probabilities.data, shape);
  const auto p_read = square_heads<const T>(probabilities.data, shape);
  const auto g = out_heads(d_out.data, shape);
  constexpr const float* kNoRowDot = nullptr;
  launch_dropout_matmul<DropoutOperand::left_transposed>(
      dropout, packed_heads(d_qkv.data, shape, 2), p_read.transposed(), g, kNoRowDot, shape, T_,
      shape.HS, T_, 1.0f, dropout, stream);
  launch_dropout_matmul<DropoutOperand::product>(
      dropout, p, g, packed_heads(qkv.data, shape, 2).transposed(), terms.dot, shape, T_, T_,
      shape.HS, attention_scale(shape, scale), dropout, stream);
  launch_head_matmul<DropoutOperand::none>(packed_heads(d_qkv.data, shape, 0), p_read,
                                           packed_heads(qkv.data, shape, 1), kNoRowDot, shape, T_,
                                           shape.HS, T_, 1.0f, Dropout{}, stream);
  launch_head_matmul<DropoutOperand::none>(packed_heads(d_qkv.data, shape, 1), p_read.transposed(),
                                           packed_heads(qkv.data, shape, 0), kNoRowDot, shape, T_,
                                           shape.HS, T_, 1.0f, Dropout{}, stream);
}

LLMC_INSTANTIATE(standard_attention_probabilities)
LLMC_INSTANTIATE(standard_attention_forward)
LLMC_INSTANTIATE(standard_attention_backward)

}  // namespace llmc
