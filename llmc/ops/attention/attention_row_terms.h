// Row terms: what the backward pass of flash attention needs for each row of the score matrix.
//
// With P the probabilities, dP = dO V^T and s the scaled scores, the gradient through the softmax
// is
//     ds_ij = P_ij (dP_ij - D_i),   D_i = sum_j P_ij dP_ij = dO_i . O_i,
// so D needs no scores, and P_ij = 2^(log2(e) (s_ij - lse_i)) is recomputed from the saved
// log-sum-exp. Both terms are stored in rows padded to a multiple of kRowTermPadding, so that every
// tile of them can be loaded in 16-byte pieces. The padding makes P = 0 and ds = 0.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

inline constexpr std::int64_t kRowTermPadding = 128;  // queries; no query tile is longer

// The log-sum-exp in units of log2, and D; (B, NH, padded T) each.
struct RowTerms {
  float* lse_log2;
  float* dot;
};

__host__ __device__ inline std::int64_t padded_rows(std::int64_t T) {
  return round_up(T, kRowTermPadding);
}

// Lanes that share a row of one head, and rows of a block. The number of rows is a multiple of
// them.
inline constexpr int kRowTermLanes = cooperating_threads(4);
inline constexpr int kRowTermThreads = cooperating_threads(256);
inline constexpr int kRowTermRows = 64;

// Neighbouring lanes process one row; the rows of a head are consecutive, so that the lanes of a
// warp write neighbouring places. The one thread of a host's block processes all rows of the block.
template <class Element>
__global__ void attention_row_terms_kernel(RowTerms terms, const Element* out, const Element* d_out,
                                           const float* lse, AttentionShape shape) {
  constexpr int N = kRowVector<Element>;
  constexpr int kRowsPerThread = kRowTermRows * kRowTermLanes / kRowTermThreads;
  const std::int64_t first_row = global_thread() / kRowTermLanes * kRowsPerThread;
  const int part = lane() % kRowTermLanes;
  const std::int64_t T_padded = padded_rows(shape.T);
  const std::int64_t first_t = first_row % T_padded;  // rows are (b, h, t), t padded
  const std::int64_t head = first_row / T_padded;     // the same for all rows of a block
  for (int r = 0; r < kRowsPerThread; ++r) {
    const std::int64_t t = first_t + r;
    const bool valid = t < shape.T;
    ThreadSum<N> sum;
    if (valid) {
      const std::int64_t offset = shape.out_offset(head / shape.NH, t, head % shape.NH);
      for (std::int64_t d = part * N; d < shape.HS; d += kRowTermLanes * N) {
        sum.add(load_floats<N>(out + offset + d) * load_floats<N>(d_out + offset + d));
      }
    }
    const float dot = quad_sum(sum.total());
    if (part == 0) {
      terms.lse_log2[first_row + r] = valid ? lse[head * shape.T + t] * kLog2E : kPlusInfinity;
      terms.dot[first_row + r] = dot;
    }
  }
}

inline std::int64_t row_terms_floats(std::int64_t B, std::int64_t T, std::int64_t NH) {
  return 2 * B * NH * padded_rows(T);
}

// Throws an Error unless the terms fit into the scratch and it starts at a multiple of 16 bytes.
inline void check_row_terms_scratch(const Tensor<float, 1>& scratch, const AttentionShape& shape) {
  const std::int64_t floats = row_terms_floats(shape.B, shape.T, shape.NH);
  if (scratch.size() < floats) {
    fail("attention backward: scratch holds " + std::to_string(scratch.size()) + " floats, " +
         std::to_string(floats) + " are needed");
  }
  check_alignment("scratch", scratch.data);
}

// Fills the scratch (row_terms_floats) and returns pointers to the terms in it.
template <class Element>
RowTerms compute_row_terms(float* scratch, const Element* out, const Element* d_out,
                           const float* lse, const AttentionShape& shape, Stream& stream) {
  static_assert(kRowTermPadding % kRowTermRows == 0);
  const std::int64_t rows = shape.B * shape.NH * padded_rows(shape.T);
  const RowTerms terms{scratch, scratch + rows};
  launch(attention_row_terms_kernel<Element>, Grid{rows / kRowTermRows, 1, 1}, kRowTermThreads, 0,
         stream, terms, out, d_out, lse, shape);
  return terms;
}

}  // namespace llmc
