// Flash attention, backward: the kernel of dK and dV. One block per tile of keys iterates over
// queries and keeps dK and dV in registers. It computes S^T = K Q^T and dP^T = V dO^T, whose
// accumulators are the A operands of dV = P^T dO and dK = scale dS^T Q
// (flash_attention_backward.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_backward_head.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/attention_tiles.h"

namespace llmc {

// 128 keys x 64 queries, 32 keys per warp; half of these for heads wider than 64. A warp processes
// 32 queries at a time, because S^T and dP^T must fit in registers next to dK and dV. With dropout
// and a head tile of 64 or 128 it processes 16, because masks must fit too.
template <class Element, int kHeadTile, bool kDropout>
struct FlashBackwardKeyTiling {
  static constexpr int kThreads = 128;
  static constexpr int kRowTiles = kHeadTile <= 64 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kKeys = 4 * kWarpRows;
  static constexpr int kQueries = kHeadTile <= 64 ? 64 : 32;
  static constexpr int kStep = kDropout && kHeadTile >= 64 ? 16 : 32;
  static_assert(kKeys % kQueries == 0 && kQueries % kStep == 0);
  static_assert(kRowTermPadding % kQueries == 0);

  using KeyTile = SharedTile<Element, kKeys, kHeadTile>;
  using QueryTile = SharedTile<Element, kQueries, kHeadTile>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<Element>(KeyTile::kElements)
                                                  .template add<Element>(KeyTile::kElements)
                                                  .template add<Element>(2 * QueryTile::kElements)
                                                  .template add<Element>(2 * QueryTile::kElements)
                                                  .template add<float>(2 * kQueries)
                                                  .template add<float>(2 * kQueries)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// Sets scores of keys that the query does not see to -inf: mask_scores, transposed.
template <int M, int N>
__device__ __forceinline__ void mask_scores_transposed(Accumulator (&s)[M][N],
                                                       const Visibility& visibility,
                                                       int first_query, int first_key) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 2; ++i) {
      const int query = first_query + 8 * n + tile_column() + i;
      const int min_key = visibility.first_key(query);
      for (int m = 0; m < M; ++m) {
        for (int r = 0; r < 2; ++r) {
          const int key = first_key + 16 * m + 8 * r + tile_row();
          if (key > query || key < min_key) s[m][n].v[2 * r + i] = kMinusInfinity;
        }
      }
    }
  }
}

// Replaces S^T of keys against queries by P^T = 2^(c S^T - lse). lse starts at the query of the
// accumulators' first column.
template <int M, int N>
__device__ __forceinline__ void probabilities_transposed(Accumulator (&s)[M][N], const float* lse,
                                                         float scale_log2) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 2; ++i) {
      const float row_lse = lse[8 * n + tile_column() + i];
      for (int m = 0; m < M; ++m) {
        for (int j = i; j < 4; j += 2) {
          s[m][n].v[j] = fast_exp2(std::fma(s[m][n].v[j], scale_log2, -row_lse));
        }
      }
    }
  }
}

// Replaces dP^T by dS^T = P^T o (dP^T - D).
template <int M, int N>
__device__ __forceinline__ void score_gradients_transposed(Accumulator (&dp)[M][N],
                                                           const Accumulator (&p)[M][N],
                                                           const float* dot) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 2; ++i) {
      const float row_dot = dot[8 * n + tile_column() + i];
      for (int m = 0; m < M; ++m) {
        for (int j = i; j < 4; j += 2) dp[m][n].v[j] = p[m][n].v[j] * (dp[m][n].v[j] - row_dot);
      }
    }
  }
}

// Tiles of queries, dO and row terms in shared memory, in two alternating stages: the next tile is
// loaded while the current one is used.
template <class Element, class Tiling>
class QueryStages {
 public:
  using QueryTile = typename Tiling::QueryTile;

  __device__ __forceinline__ explicit QueryStages(SharedMemory& shared)
      : queries_(shared.take<Element>(2 * QueryTile::kElements)),
        d_outs_(shared.take<Element>(2 * QueryTile::kElements)),
        lse_(shared.take<float>(2 * kQueries)),
        dot_(shared.take<float>(2 * kQueries)) {}

  __device__ __forceinline__ QueryTile queries(int stage) const {
    return QueryTile{queries_ + stage * QueryTile::kElements};
  }
  __device__ __forceinline__ QueryTile d_outs(int stage) const {
    return QueryTile{d_outs_ + stage * QueryTile::kElements};
  }
  __device__ __forceinline__ const float* lse(int stage) const { return lse_ + stage * kQueries; }
  __device__ __forceinline__ const float* dot(int stage) const { return dot_ + stage * kQueries; }

  // Starts the copy of a tile of queries into stage tile & 1. Rows of qkv are `stride` elements
  // apart, rows of d_out C.
  __device__ __forceinline__ void load(int tile, const BackwardHead<Element>& head,
                                       std::int64_t stride, std::int64_t C, int T, int HS) const {
    const int stage = tile & 1;
    const std::int64_t q0 = tile * kQueries;
    const int rows = T - tile * kQueries;
    load_tile_async<Tiling::kThreads>(queries(stage), head.qkv + q0 * stride, stride, rows, HS);
    load_tile_async<Tiling::kThreads>(d_outs(stage), head.d_out + q0 * C, C, rows, HS);
    const int i = thread_index() * 4;
    if (i < kQueries) {
      copy_async_16(lse_ + stage * kQueries + i, head.lse_log2 + q0 + i);
      copy_async_16(dot_ + stage * kQueries + i, head.dot + q0 + i);
    }
    copy_async_commit();
  }

 private:
  static constexpr int kQueries = Tiling::kQueries;
  Element* queries_;
  Element* d_outs_;
  float* lse_;
  float* dot_;
};

// The parts of one step of a warp. The kernel declares all tiles and passes them in, because ptxas
// assigns other registers to arrays that are declared in inlined functions.

// Computes P^T of the warp's keys from k0 and the queries from q0, which are rows `step` and on of
// the stage. p is zero on entry.
template <class Element, class Tiling, int M, int N>
__device__ __forceinline__ void step_probabilities(
    Accumulator (&p)[M][N], const SharedOperands<typename Tiling::KeyTile>& key_rows,
    const QueryStages<Element, Tiling>& stages, int stage, int step, const Visibility& visibility,
    int q0, int k0, float scale) {
  multiply_by_rows<Element, Tiling::QueryTile::kColumns / 16>(p, key_rows, stages.queries(stage),
                                                              step);
  const int q1 = q0 + Tiling::kStep - 1;
  if (!visibility.all_visible(q0, q1, k0, k0 + Tiling::kWarpRows - 1)) {
    mask_scores_transposed(p, visibility, q0, k0);
  }
  probabilities_transposed(p, stages.lse(stage) + step, scale * kLog2E);
}

// Rounds P^T to the operand of the product with dO. With dropout it rounds only the kept
// probabilities. `keep_bits` receives the mask bits, `p_dropout` the probabilities after dropout.
template <class Element, bool kDropout, int M, int N>
__device__ __forceinline__ void round_probabilities(OperandA (&operands)[M][N / 2],
                                                    std::uint32_t (&keep_bits)[M],
                                                    Accumulator (&p_dropout)[M][N],
                                                    const Accumulator (&p)[M][N],
                                                    const DropoutMask& mask, int q0, int k0) {
  if constexpr (kDropout) {
    const int head_index = static_cast<int>(block_y());
    for (int m = 0; m < M; ++m) {
      keep_bits[m] = kept_elements_transposed<N>(mask, q0, k0 + 16 * m, head_index);
      for (int n = 0; n < N; ++n) p_dropout[m][n] = p[m][n];
      drop_elements(p_dropout[m], keep_bits[m], 1.0f);
    }
    as_operands<Element>(operands, p_dropout);
  } else {
    as_operands<Element>(operands, p);
  }
}

// Computes dS^T of the same keys and queries. ds is zero on entry.
template <class Element, bool kDropout, class Tiling, int M, int N>
__device__ __forceinline__ void step_score_gradients(
    Accumulator (&ds)[M][N], const Accumulator (&p)[M][N],
    const SharedOperands<typename Tiling::KeyTile>& value_rows,
    const QueryStages<Element, Tiling>& stages, int stage, int step,
    const std::uint32_t (&keep_bits)[M], const DropoutMask& mask) {
  multiply_by_rows<Element, Tiling::QueryTile::kColumns / 16>(ds, value_rows, stages.d_outs(stage),
                                                              step);
  if constexpr (kDropout) {
    for (int m = 0; m < M; ++m) drop_elements(ds[m], keep_bits[m], mask.scale);
  }
  score_gradients_transposed(ds, p, stages.dot(stage) + step);
}

// Grid (key tiles, NH, B). Two blocks share a multiprocessor: up to 255 registers per thread.
template <class Element, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(128, 2) void flash_attention_backward_key_kernel(
    Element* d_qkv, const Element* d_out, const Element* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardKeyTiling<Element, kHeadTile, kDropout>;
  using KeyTile = typename Tiling::KeyTile;
  constexpr int M = Tiling::kRowTiles;
  constexpr int N = Tiling::kStep / 8;
  constexpr int kQueries = Tiling::kQueries;

  SharedMemory shared;
  const KeyTile keys{shared.take<Element>(KeyTile::kElements)};
  const KeyTile values{shared.take<Element>(KeyTile::kElements)};
  const QueryStages<Element, Tiling> stages(shared);

  const BackwardHead<Element> head(d_out, qkv, terms, doc_start, shape, block_z(), block_y());
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int k0 = block_x() * Tiling::kKeys;
  const int last_key = (k0 + Tiling::kKeys < T ? k0 + Tiling::kKeys : T) - 1;

  // True if the query tile begins below T and its first query's document begins at or before
  // last_key. Documents that begin later do not see the keys, so the loop ends there.
  const auto is_needed = [&](int tile) {
    return tile * kQueries < T && visibility.first_key(tile * kQueries) <= last_key;
  };
  const Element* k = head.qkv + k0 * stride + C;
  load_tile_async<Tiling::kThreads>(keys, k, stride, T - k0, HS);
  load_tile_async<Tiling::kThreads>(values, k + C, stride, T - k0, HS);
  const int first_tile = k0 / kQueries;
  stages.load(first_tile, head, stride, C, T, HS);

  const int warp_row = warp_in_block() * Tiling::kWarpRows;
  const int warp_k0 = k0 + warp_row;
  const int warp_k1 = warp_k0 + Tiling::kWarpRows - 1;
  const SharedOperands<KeyTile> key_rows{keys, warp_row};
  const SharedOperands<KeyTile> value_rows{values, warp_row};
  Accumulator dk[M][kHeadTile / 8] = {};
  Accumulator dv[M][kHeadTile / 8] = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  for (int tile = first_tile; is_needed(tile); ++tile) {
    const int stage = tile & 1;
    copy_async_wait<0>();
    block_barrier();
    if (is_needed(tile + 1)) stages.load(tile + 1, head, stride, C, T, HS);

    for (int step = 0; step < kQueries; step += Tiling::kStep) {
      const int q0 = tile * kQueries + step;
      if (visibility.none_visible(q0, q0 + Tiling::kStep - 1, warp_k0, warp_k1)) continue;
      OperandA operands[M][N / 2];

      Accumulator p[M][N] = {};
      step_probabilities(p, key_rows, stages, stage, step, visibility, q0, warp_k0, scale);
      std::uint32_t keep_bits[M] = {};
      Accumulator p_dropout[M][N];
      round_probabilities<Element, kDropout>(operands, keep_bits, p_dropout, p, mask, q0, warp_k0);
      multiply_by_columns<Element>(dv, operands, stages.d_outs(stage), step);

      Accumulator ds[M][N] = {};
      step_score_gradients<Element, kDropout>(ds, p, value_rows, stages, stage, step, keep_bits,
                                              mask);
      as_operands<Element>(operands, ds);
      multiply_by_columns<Element>(dk, operands, stages.queries(stage), step);
    }
  }

  multiply_elements(dk, scale);
  if constexpr (kDropout) multiply_elements(dv, mask.scale);
  Element* d_k = d_qkv + shape.qkv_offset(block_z(), warp_k0, block_y()) + C;
  store_rows(d_k, stride, T - warp_k0, HS, dk, keys, warp_row);
  store_rows(d_k + C, stride, T - warp_k0, HS, dv, values, warp_row);
}

}  // namespace llmc
