// Flash attention, backward: the kernel of dQ. One block per tile of queries iterates over keys and
// keeps dQ in registers, as the forward kernel does its output (flash_attention_backward.h).
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

// As in the forward kernel, but with 32 keys at a time in registers, because the registers hold
// both S and dP.
template <class Element, int kHeadTile>
struct FlashBackwardQueryTiling {
  static constexpr int kThreads = 128;
  static constexpr int kRowTiles = kHeadTile <= 64 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kQueries = 4 * kWarpRows;
  static constexpr int kKeys = kHeadTile <= 64 ? 64 : 32;
  static constexpr int kStep = 32;
  static_assert(kKeys % kStep == 0 && kRowTermPadding % kQueries == 0);

  using QueryTile = SharedTile<Element, kQueries, kHeadTile>;
  using KeyTile = SharedTile<Element, kKeys, kHeadTile>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<Element>(QueryTile::kElements)
                                                  .template add<Element>(QueryTile::kElements)
                                                  .template add<Element>(2 * KeyTile::kElements)
                                                  .template add<Element>(2 * KeyTile::kElements)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// Replaces dP by dS = P o (dP - D), computed from S and dP of the same rows and keys.
template <int M, int N>
__device__ __forceinline__ void score_gradients(Accumulator (&dp)[M][N],
                                                const Accumulator (&s)[M][N],
                                                const float (&lse)[M][2], const float (&dot)[M][2],
                                                float scale_log2) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      for (int i = 0; i < 4; ++i) {
        const float p = fast_exp2(std::fma(s[m][n].v[i], scale_log2, -lse[m][i / 2]));
        dp[m][n].v[i] = p * (dp[m][n].v[i] - dot[m][i / 2]);
      }
    }
  }
}

// Tiles of keys and values in shared memory, in two alternating stages: the next tile is loaded
// while the current one is used.
template <class Element, class Tiling>
class KeyStages {
 public:
  using KeyTile = typename Tiling::KeyTile;

  __device__ __forceinline__ explicit KeyStages(SharedMemory& shared)
      : keys_(shared.take<Element>(2 * KeyTile::kElements)),
        values_(shared.take<Element>(2 * KeyTile::kElements)) {}

  __device__ __forceinline__ KeyTile keys(int stage) const {
    return KeyTile{keys_ + stage * KeyTile::kElements};
  }
  __device__ __forceinline__ KeyTile values(int stage) const {
    return KeyTile{values_ + stage * KeyTile::kElements};
  }

  // Starts the copy of a tile of keys into stage tile & 1. Rows of qkv are `stride` elements apart.
  __device__ __forceinline__ void load(int tile, const BackwardHead<Element>& head,
                                       std::int64_t stride, std::int64_t C, int T, int HS) const {
    const int stage = tile & 1;
    const Element* k = head.qkv + tile * KeyTile::kRows * stride + C;
    const int rows = T - tile * KeyTile::kRows;
    load_tile_async<Tiling::kThreads>(keys(stage), k, stride, rows, HS);
    load_tile_async<Tiling::kThreads>(values(stage), k + C, stride, rows, HS);
    copy_async_commit();
  }

 private:
  Element* keys_;
  Element* values_;
};

// Loads the row terms of this thread's rows. The warp's queries start at first_query.
template <class Element, int M>
__device__ __forceinline__ void load_row_terms(float (&lse)[M][2], float (&dot)[M][2],
                                               const BackwardHead<Element>& head, int first_query) {
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < 2; ++r) {
      const int query = first_query + 16 * m + 8 * r + tile_row();
      lse[m][r] = head.lse_log2[query];
      dot[m][r] = head.dot[query];
    }
  }
}

// Grid (query tiles, NH, B). Two blocks share a multiprocessor: up to 255 registers per thread.
template <class Element, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(128, 2) void flash_attention_backward_query_kernel(
    Element* d_qkv, const Element* d_out, const Element* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardQueryTiling<Element, kHeadTile>;
  using QueryTile = typename Tiling::QueryTile;
  constexpr int M = Tiling::kRowTiles;
  constexpr int N = Tiling::kStep / 8;
  constexpr int kKeys = Tiling::kKeys;

  SharedMemory shared;
  const QueryTile queries{shared.take<Element>(QueryTile::kElements)};
  const QueryTile d_outs{shared.take<Element>(QueryTile::kElements)};
  const KeyStages<Element, Tiling> stages(shared);

  const BackwardHead<Element> head(d_out, qkv, terms, doc_start, shape, block_z(), block_y());
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = (grid_x() - 1 - block_x()) * Tiling::kQueries;  // most keys first
  const int last_query = (q0 + Tiling::kQueries < T ? q0 + Tiling::kQueries : T) - 1;
  const int first_tile = visibility.first_key(q0) / kKeys;
  const int last_tile = last_query / kKeys;

  load_tile_async<Tiling::kThreads>(queries, head.qkv + q0 * stride, stride, T - q0, HS);
  load_tile_async<Tiling::kThreads>(d_outs, head.d_out + q0 * C, C, T - q0, HS);
  stages.load(last_tile, head, stride, C, T, HS);
  copy_async_wait<0>();
  block_barrier();

  const int warp_row = warp_in_block() * Tiling::kWarpRows;
  const int warp_q0 = q0 + warp_row;
  const int warp_q1 = warp_q0 + Tiling::kWarpRows - 1;
  RegisterOperands<M, kHeadTile / 16> q;
  RegisterOperands<M, kHeadTile / 16> g;
  q.load(queries, warp_row);
  g.load(d_outs, warp_row);
  float lse[M][2];
  float dot[M][2];
  load_row_terms(lse, dot, head, warp_q0);
  Accumulator dq[M][kHeadTile / 8] = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  for (int tile = last_tile; tile >= first_tile; --tile) {
    const int stage = tile & 1;
    copy_async_wait<0>();
    block_barrier();
    if (tile > first_tile) stages.load(tile - 1, head, stride, C, T, HS);

    for (int step = 0; step < kKeys; step += Tiling::kStep) {
      const int k0 = tile * kKeys + step;
      const int k1 = k0 + Tiling::kStep - 1;
      if (visibility.none_visible(warp_q0, warp_q1, k0, k1)) continue;
      Accumulator s[M][N] = {};
      Accumulator ds[M][N] = {};
      multiply_by_rows<Element, kHeadTile / 16>(s, q, stages.keys(stage), step);
      multiply_by_rows<Element, kHeadTile / 16>(ds, g, stages.values(stage), step);
      if (!visibility.all_visible(warp_q0, warp_q1, k0, k1)) {
        mask_scores(s, visibility, warp_q0, k0);
      }
      if constexpr (kDropout) drop_tiles(ds, mask, warp_q0, k0, mask.scale);
      score_gradients(ds, s, lse, dot, scale * kLog2E);
      OperandA operands[M][N / 2];
      as_operands<Element>(operands, ds);
      multiply_by_columns<Element>(dq, operands, stages.keys(stage), step);
    }
  }

  multiply_elements(dq, scale);
  store_rows(d_qkv + shape.qkv_offset(block_z(), warp_q0, block_y()), stride, T - warp_q0, HS, dq,
             queries, warp_row);
}

}  // namespace llmc
