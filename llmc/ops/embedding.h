// Token plus position embedding.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Buckets of batch rows by token in device memory (built on the host, token_buckets.h). Distinct id
// i is token[i], at rows position[start[i]] .. position[start[i+1]-1].
struct TokenBucketsView {
  const std::int32_t* token;     // (count), ascending
  const std::int32_t* start;     // (count + 1)
  const std::int32_t* position;  // (B*T), ascending within a bucket
  std::int64_t count;            // distinct tokens
};

// kRowsPerBlock rows per block. Sequences begin at first_position, or at 0 if it is null.
template <class T>
__global__ void embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* wte,
                                         const T* wpe, const std::int32_t* first_position,
                                         std::int64_t rows, std::int64_t C, std::int64_t T_seq) {
  constexpr int N = kRowVector<T>;
  const int threads = cooperating_threads(block_size());
  const std::int64_t first_row = block_x() * kRowsPerBlock;
  for (int r = 0; r < kRowsPerBlock; ++r) {
    const std::int64_t row = first_row + r;
    if (row >= rows) return;
    const T* token_row = wte + static_cast<std::int64_t>(tokens[row]) * C;
    const std::int64_t first = first_position == nullptr ? 0 : first_position[row / T_seq];
    const T* position_row = wpe + (first + row % T_seq) * C;
    for (std::int64_t c = thread_index() * N; c < C; c += threads * N) {
      store_floats(out + row * C + c,
                   load_floats<N>(token_row + c) + load_floats<N>(position_row + c));
    }
  }
}

// Block (distinct token, tile of channels). The warps share the bucket's rows, so that a frequent
// token is not one long chain of additions.
template <class T>
__global__ void token_gradient_kernel(float* d_wte, const T* d_out, TokenBucketsView buckets,
                                      std::int64_t C) {
  const std::int64_t bucket = block_x();
  const std::int64_t start = buckets.start[bucket];
  const std::int32_t* position = buckets.position + start;
  float* d_token_row = d_wte + static_cast<std::int64_t>(buckets.token[bucket]) * C;
  block_column_sum<T>(
      d_out, C, C, block_y(), buckets.start[bucket + 1] - start,
      [=](std::int64_t i) { return static_cast<std::int64_t>(position[i]); },
      [=](std::int64_t c, float sum) { d_token_row[c] += sum; });
}

// One block per time step; each thread adds its channels over the batch, in order.
template <class T>
__global__ void position_gradient_kernel(float* d_wpe, const T* d_out, std::int64_t B,
                                         std::int64_t T_seq, std::int64_t C) {
  constexpr int N = kRowVector<T>;
  const int threads = cooperating_threads(block_size());
  const std::int64_t t = block_x();
  for (std::int64_t c = thread_index() * N; c < C; c += threads * N) {
    Floats<N> sum;
    for (std::int64_t b = 0; b < B; ++b) sum += load_floats<N>(d_out + (b * T_seq + t) * C + c);
    float* d = d_wpe + t * C + c;
    store_floats(d, load_floats<N>(d) + sum);
  }
}

// Writes out (B*T_seq, C): row r = b * T_seq + t is wte[tokens[r]] + wpe[first_position[b] + t].
// tokens (B*T_seq) and first_position (B) are in device memory; a null first_position means 0. The
// caller guarantees tokens in [0, rows of wte) and first_position <= rows of wpe - T_seq. wte has
// at least V rows, wpe at least T_seq, of C channels each. C is a multiple of 8.
template <class T>
void embedding_forward(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, In<T, 2> wte,
                       In<T, 2> wpe, const std::int32_t* first_position, std::int64_t T_seq,
                       Stream& stream) {
  const ProfileScope scope("embedding forward", stream);
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("embedding_forward", C);
  check_shape("tokens", tokens, {rows});
  check_shape("wte", wte, {wte.shape[0], C});
  check_shape("wpe", wpe, {wpe.shape[0], C});
  require(T_seq > 0 && rows % T_seq == 0,
          "embedding_forward: the number of rows is not a multiple of the sequence length");
  require(T_seq <= wpe.shape[0], "embedding_forward: sequences are longer than the context");
  launch(embedding_forward_kernel<T>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
         row_block_threads<T>(C), 0, stream, out.data, tokens.data, wte.data, wpe.data,
         first_position, rows, C, T_seq);
}

// The same for sequences that begin at position 0.
template <class T>
void embedding_forward(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, In<T, 2> wte,
                       In<T, 2> wpe, std::int64_t T_seq, Stream& stream) {
  embedding_forward<T>(out, tokens, wte, wpe, nullptr, T_seq, stream);
}

// Adds to d_wte (V or more, C) and d_wpe (at least T_seq, C), both fp32: the sums of the rows of
// d_out (B*T_seq, C) that hold each token, and each position. Rows of tokens that do not occur and
// positions from T_seq on do not change. Each of the two may have no data (frozen) and is skipped
// then. `buckets` describes the same B*T_seq tokens that embedding_forward read. Deterministic.
template <class T>
void embedding_backward(Tensor<float, 2> d_wte, Tensor<float, 2> d_wpe, In<T, 2> d_out,
                        TokenBucketsView buckets, std::int64_t T_seq, Stream& stream) {
  const ProfileScope scope("embedding backward", stream);
  const std::int64_t rows = d_out.shape[0], C = d_out.shape[1];
  require_vector_rows("embedding_backward", C);
  require(T_seq > 0 && rows % T_seq == 0,
          "embedding_backward: the number of rows is not a multiple of the sequence length");
  if (rows == 0) return;
  if (d_wte.data != nullptr) {
    check_shape("d_wte", d_wte, {d_wte.shape[0], C});
    constexpr int kThreads = cooperating_threads(256);
    launch(token_gradient_kernel<T>, Grid{buckets.count, ceil_div(C, kColumnTile<T>), 1}, kThreads,
           column_sum_shared<T>(kThreads), stream, d_wte.data, d_out.data, buckets, C);
  }
  if (d_wpe.data != nullptr) {
    check_shape("d_wpe", d_wpe, {d_wpe.shape[0], C});
    require(T_seq <= d_wpe.shape[0], "embedding_backward: sequences are longer than the context");
    launch(position_gradient_kernel<T>, Grid{T_seq, 1, 1}, row_block_threads<T>(C), 0, stream,
           d_wpe.data, d_out.data, rows / T_seq, T_seq, C);
  }
}

}  // namespace llmc
