// Flash attention, forward, on tensor cores (Dao et al. 2022, 2023). Scores exist only one tile at
// a time, in registers.
//
// A block processes kQueries queries of one head and iterates over tiles of kKeys keys. For each
// tile, every warp computes S = Q K^T for its own rows, updates a running softmax (Milakov &
// Gimelshein 2018) and adds P V to its output rows. With m the greatest score of a row so far and
// c = scale * log2(e),
//     p_j = 2^(c s_j - c m),   l = sum_j p_j,   o = sum_j p_j v_j;
// if m grows to m', l and o are multiplied by 2^(c (m - m')). At the end out = o / l and the row's
// log-sum-exp is scale * m + ln l.
//
// Reasons for this structure:
//  - Key tiles are processed from the diagonal to lower keys. kKeys is a multiple of a warp's rows,
//    so the first tile that a warp processes holds the diagonal of all its rows. m is finite from
//    then on, and no (-inf) - (-inf) can occur. A warp skips tiles that it cannot see; tiles that
//    no query of the block can see are never loaded.
//  - K and V of the next tile are loaded (cp.async, two stages) while this one is used. One barrier
//    per tile is enough, because the stage being filled was last read before it.
//  - Q stays in registers; P is passed to the second product in registers.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles.h"

namespace llmc {

// 128 queries x 64 keys, 32 rows per warp. Wide heads halve the rows, because their accumulators
// are twice as large.
template <class Element, int kHeadTile>
struct FlashForwardTiling {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowTiles = kHeadTile <= 64 ? 2 : 1;  // 16-row tiles per warp
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kQueries = kWarps * kWarpRows;
  static constexpr int kKeys = 64;
  static_assert(kKeys % kWarpRows == 0, "a warp's diagonal lies in one key tile");

  using QueryTile = SharedTile<Element, kQueries, kHeadTile>;
  using KeyTile = SharedTile<Element, kKeys, kHeadTile>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<Element>(QueryTile::kElements)
                                                  .template add<Element>(2 * KeyTile::kElements)
                                                  .template add<Element>(2 * KeyTile::kElements)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// Running softmax of one row; `sum` is this lane's part of the sum.
struct SoftmaxRow {
  float max = kMinusInfinity;
  float sum = 0.0f;
};

// Replaces the scores of 16 rows by p, and updates the rows' softmax state and output.
template <int kKeyTiles, int kHeadTiles>
__device__ __forceinline__ void softmax_step(Accumulator (&s)[kKeyTiles],
                                             Accumulator (&o)[kHeadTiles], SoftmaxRow (&rows)[2],
                                             float scale_log2) {
  for (int r = 0; r < 2; ++r) {
    float row_max = rows[r].max;
    for (int n = 0; n < kKeyTiles; ++n) {
      row_max = std::fmax(row_max, std::fmax(s[n].v[2 * r], s[n].v[2 * r + 1]));
    }
    row_max = quad_max(row_max);
    const float correction = fast_exp2((rows[r].max - row_max) * scale_log2);
    const float offset = row_max * scale_log2;
    float sum = 0.0f;
    for (int n = 0; n < kKeyTiles; ++n) {
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        // A compiler may fuse one of two products with their difference, in each place another one.
        s[n].v[i] = fast_exp2(std::fma(s[n].v[i], scale_log2, -offset));
        sum += s[n].v[i];
      }
    }
    rows[r].max = row_max;
    rows[r].sum = rows[r].sum * correction + sum;
    for (int n = 0; n < kHeadTiles; ++n) {
      o[n].v[2 * r] *= correction;
      o[n].v[2 * r + 1] *= correction;
    }
  }
}

// Ends the softmax of a warp's rows: multiplies their output by dropout_scale / sum, and writes the
// log-sum-exp of the rows below T from row_lse[first_query] on.
template <int M, int kHeadTiles>
__device__ __forceinline__ void finish_softmax(Accumulator (&o)[M][kHeadTiles],
                                               const SoftmaxRow (&rows)[M][2], float* row_lse,
                                               int first_query, int T, float scale,
                                               float dropout_scale) {
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(rows[m][r].sum);
      const float inverse = dropout_scale / sum;
      const int query = first_query + 16 * m + 8 * r + tile_row();
      if (query < T && tile_column() == 0) {
        row_lse[query] = rows[m][r].max * scale + std::log(sum);
      }
      for (int n = 0; n < kHeadTiles; ++n) {
        o[m][n].v[2 * r] *= inverse;
        o[m][n].v[2 * r + 1] *= inverse;
      }
    }
  }
}

// Grid (query tiles, NH, B). Two blocks share a multiprocessor: up to 255 registers per thread.
template <class Element, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(128, 2) void flash_attention_forward_kernel(
    Element* out, float* lse, const Element* qkv, const std::int32_t* doc_start,
    AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashForwardTiling<Element, kHeadTile>;
  using QueryTile = typename Tiling::QueryTile;
  using KeyTile = typename Tiling::KeyTile;
  constexpr int M = Tiling::kRowTiles;
  constexpr int kKeys = Tiling::kKeys;

  SharedMemory shared;
  const QueryTile queries{shared.take<Element>(QueryTile::kElements)};
  Element* key_stages = shared.take<Element>(2 * KeyTile::kElements);
  Element* value_stages = shared.take<Element>(2 * KeyTile::kElements);

  const int b = block_z();
  const int h = block_y();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = (grid_x() - 1 - block_x()) * Tiling::kQueries;  // most keys first
  const Visibility visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T, T};
  const int last_query = (q0 + Tiling::kQueries < T ? q0 + Tiling::kQueries : T) - 1;
  const int last_tile = last_query / kKeys;
  const int first_tile = visibility.first_key(q0) / kKeys;

  const auto keys = [&](int stage) { return KeyTile{key_stages + stage * KeyTile::kElements}; };
  const auto values = [&](int stage) { return KeyTile{value_stages + stage * KeyTile::kElements}; };
  const auto load_keys = [&](int tile) {  // into stage tile & 1
    const int stage = tile & 1;
    const Element* k = qkv + shape.qkv_offset(b, tile * kKeys, h) + shape.C();
    const int rows = T - tile * kKeys;
    load_tile_async<Tiling::kThreads>(keys(stage), k, shape.qkv_stride(), rows, HS);
    load_tile_async<Tiling::kThreads>(values(stage), k + shape.C(), shape.qkv_stride(), rows, HS);
    copy_async_commit();
  };
  load_tile_async<Tiling::kThreads>(queries, qkv + shape.qkv_offset(b, q0, h), shape.qkv_stride(),
                                    T - q0, HS);
  load_keys(last_tile);
  copy_async_wait<0>();
  block_barrier();

  const int warp_row = warp_in_block() * Tiling::kWarpRows;  // first row of the warp in the tile
  const int warp_q0 = q0 + warp_row;
  RegisterOperands<M, kHeadTile / 16> q;
  q.load(queries, warp_row);
  Accumulator o[M][kHeadTile / 8] = {};
  SoftmaxRow rows[M][2];
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(b);

  for (int tile = last_tile; tile >= first_tile; --tile) {
    const int stage = tile & 1;
    copy_async_wait<0>();
    block_barrier();
    if (tile > first_tile) load_keys(tile - 1);

    const int k0 = tile * kKeys;
    const int warp_q1 = warp_q0 + Tiling::kWarpRows - 1;
    if (visibility.none_visible(warp_q0, warp_q1, k0, k0 + kKeys - 1)) continue;
    Accumulator s[M][kKeys / 8] = {};
    multiply_by_rows<Element, kHeadTile / 16>(s, q, keys(stage), 0);
    if (!visibility.all_visible(warp_q0, warp_q1, k0, k0 + kKeys - 1)) {
      mask_scores(s, visibility, warp_q0, k0);
    }
    for (int m = 0; m < M; ++m) softmax_step(s[m], o[m], rows[m], scale * kLog2E);
    if constexpr (kDropout) drop_tiles(s, mask, warp_q0, k0, 1.0f);
    OperandA p[M][kKeys / 16];
    as_operands<Element>(p, s);
    multiply_by_columns<Element>(o, p, values(stage), 0);
  }

  if (warp_q0 >= T) return;  // only padding: the warp has seen no key and has nothing to write
  finish_softmax(o, rows, lse + (b * shape.NH + h) * shape.T, warp_q0, T, scale,
                 kDropout ? mask.scale : 1.0f);
  store_rows(out + shape.out_offset(b, warp_q0, h), shape.C(), T - warp_q0, HS, o, queries,
             warp_row);
}

template <class Element, bool kDropout>
void launch_flash_forward(Element* out, float* lse, const Element* qkv,
                          const std::int32_t* doc_start, const AttentionShape& shape, float scale,
                          const Dropout& dropout, Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    using Tiling = FlashForwardTiling<Element, kHeadTile>;
    launch(flash_attention_forward_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, Tiling::kQueries), shape.NH, shape.B}, Tiling::kThreads,
           Tiling::kSharedBytes, stream, out, lse, qkv, doc_start, shape, scale, dropout);
  });
}

}  // namespace llmc
