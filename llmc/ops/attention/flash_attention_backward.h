// Flash attention, backward, on tensor cores. With P recomputed tile by tile, S the scaled scores:
//     dV = P^T dO,   dP = dO V^T,   dS = P o (dP - D),   dQ = scale dS K,   dK = scale dS^T Q
// (D: attention_row_terms.h). Deterministic: every element of d_qkv is summed by one thread in a
// fixed order and written once.
//
// Two kernels share the work, and the two products they both need are done twice (7 instead of 5):
//  - one block per tile of keys, walking over queries, keeps dK and dV in registers. It forms
//    S^T = K Q^T and dP^T = V dO^T, whose accumulators are the A operands of P^T dO and dS^T Q;
//  - one block per tile of queries, walking over keys, keeps dQ in registers, as the forward does.
// A fused kernel (5 products) must hand dQ from block to block in a fixed order; it would take the
// place of both behind launch_flash_backward and needs nothing else from its caller.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/attention_tiles.h"

namespace llmc {

// One head of one batch row: pointers to row 0, and the strides between rows.
template <class Element>
struct BackwardHead {
  const Element* d_out;  // stride C
  const Element* qkv;    // q; k lies C further on, v 2C
  const float* lse_log2;
  const float* dot;
  Visibility visibility;

  __device__ BackwardHead(const Element* d_out_all, const Element* qkv_all, const RowTerms& terms,
                          const std::int32_t* doc_start, const AttentionShape& shape, int b, int h)
      : d_out(d_out_all + shape.out_offset(b, 0, h)),
        qkv(qkv_all + shape.qkv_offset(b, 0, h)),
        lse_log2(terms.lse_log2 + (b * shape.NH + h) * padded_rows(shape.T)),
        dot(terms.dot + (b * shape.NH + h) * padded_rows(shape.T)),
        visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T,
                   static_cast<int>(shape.T)} {}
};

// ---- dK and dV --------------------------------------------------------------------------------

// 128 keys x 64 queries, 32 keys a warp; half of both for wide heads. A warp works through the
// queries 32 at a time: S^T and dP^T together must fit beside dK and dV in registers; 16 where
// masks must fit too.
template <class Element, int kHeadTile, bool kDropout>
struct FlashBackwardKeyTiling {
  static constexpr int kThreads = 128;
  static constexpr int kRowTiles = kHeadTile <= 64 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kKeys = 4 * kWarpRows;
  static constexpr int kQueries = kHeadTile <= 64 ? 64 : 32;
  static constexpr int kStep = kDropout && kHeadTile == 64 ? 16 : 32;
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

// Scores of keys the query does not see become -inf: mask_scores, transposed.
template <int M, int N>
__device__ __forceinline__ void mask_scores_transposed(Accumulator (&s)[M][N],
                                                       const Visibility& visibility,
                                                       int first_query, int first_key) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 2; ++i) {
      const int query = first_query + 8 * n + tile_column() + i;
      const int lowest = visibility.first_key(query);
      for (int m = 0; m < M; ++m) {
        for (int r = 0; r < 2; ++r) {
          const int key = first_key + 16 * m + 8 * r + tile_row();
          if (key > query || key < lowest) s[m][n].v[2 * r + i] = kMinusInfinity;
        }
      }
    }
  }
}

// S^T of keys against queries becomes P^T = 2^(c S^T - lse). lse belongs to the accumulators' first
// column.
template <int M, int N>
__device__ __forceinline__ void probabilities_transposed(Accumulator (&s)[M][N], const float* lse,
                                                         float scale_log2) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 2; ++i) {
      const float row_lse = lse[8 * n + tile_column() + i];
      for (int m = 0; m < M; ++m) {
        for (int j = i; j < 4; j += 2) {
          s[m][n].v[j] = fast_exp2(s[m][n].v[j] * scale_log2 - row_lse);
        }
      }
    }
  }
}

// dP^T becomes dS^T = P^T o (dP^T - D).
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

// Grid (key tiles, NH, B). Two blocks share a multiprocessor: up to 255 registers a thread.
template <class Element, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(128, 2) void flash_attention_backward_key_kernel(
    Element* d_qkv, const Element* d_out, const Element* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardKeyTiling<Element, kHeadTile, kDropout>;
  using KeyTile = typename Tiling::KeyTile;
  using QueryTile = typename Tiling::QueryTile;
  constexpr int M = Tiling::kRowTiles;
  constexpr int N = Tiling::kStep / 8;
  constexpr int kQueries = Tiling::kQueries;

  SharedMemory shared;
  const KeyTile keys{shared.take<Element>(KeyTile::kElements)};
  const KeyTile values{shared.take<Element>(KeyTile::kElements)};
  Element* query_stages = shared.take<Element>(2 * QueryTile::kElements);
  Element* d_out_stages = shared.take<Element>(2 * QueryTile::kElements);
  float* lse_stages = shared.take<float>(2 * kQueries);
  float* dot_stages = shared.take<float>(2 * kQueries);

  const BackwardHead<Element> head(d_out, qkv, terms, doc_start, shape, block_z(), block_y());
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int k0 = block_x() * Tiling::kKeys;
  const int last_key = (k0 + Tiling::kKeys < T ? k0 + Tiling::kKeys : T) - 1;

  // Queries of a tile come after the keys; the walk ends where documents later than the keys begin.
  const auto needed = [&](int tile) {
    return tile * kQueries < T && visibility.first_key(tile * kQueries) <= last_key;
  };
  const auto queries = [&](int stage) {
    return QueryTile{query_stages + stage * QueryTile::kElements};
  };
  const auto d_outs = [&](int stage) {
    return QueryTile{d_out_stages + stage * QueryTile::kElements};
  };
  const auto load_queries = [&](int tile) {  // into stage tile & 1
    const int stage = tile & 1;
    const std::int64_t q0 = tile * kQueries;
    const int rows = T - tile * kQueries;
    load_tile_async<Tiling::kThreads>(queries(stage), head.qkv + q0 * stride, stride, rows, HS);
    load_tile_async<Tiling::kThreads>(d_outs(stage), head.d_out + q0 * C, C, rows, HS);
    const int i = thread_index() * 4;
    if (i < kQueries) {
      copy_async_16(lse_stages + stage * kQueries + i, head.lse_log2 + q0 + i);
      copy_async_16(dot_stages + stage * kQueries + i, head.dot + q0 + i);
    }
    copy_async_commit();
  };
  const Element* k = head.qkv + k0 * stride + C;
  load_tile_async<Tiling::kThreads>(keys, k, stride, T - k0, HS);
  load_tile_async<Tiling::kThreads>(values, k + C, stride, T - k0, HS);
  const int first_tile = k0 / kQueries;
  load_queries(first_tile);

  const int warp_row = warp_in_block() * Tiling::kWarpRows;
  const int warp_k0 = k0 + warp_row;
  const int warp_k1 = warp_k0 + Tiling::kWarpRows - 1;
  const SharedOperands<KeyTile> key_rows{keys, warp_row};
  const SharedOperands<KeyTile> value_rows{values, warp_row};
  Accumulator dk[M][kHeadTile / 8] = {};
  Accumulator dv[M][kHeadTile / 8] = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.of_row(block_z());

  for (int tile = first_tile; needed(tile); ++tile) {
    const int stage = tile & 1;
    copy_async_wait<0>();
    block_barrier();
    if (needed(tile + 1)) load_queries(tile + 1);

    for (int step = 0; step < kQueries; step += Tiling::kStep) {
      const int q0 = tile * kQueries + step;
      const int q1 = q0 + Tiling::kStep - 1;
      if (visibility.none_visible(q0, q1, warp_k0, warp_k1)) continue;
      OperandA rounded[M][N / 2];

      Accumulator p[M][N] = {};
      multiply_by_rows<Element, kHeadTile / 16>(p, key_rows, queries(stage), step);
      if (!visibility.all_visible(q0, q1, warp_k0, warp_k1)) {
        mask_scores_transposed(p, visibility, q0, warp_k0);
      }
      probabilities_transposed(p, lse_stages + stage * kQueries + step, scale * kLog2E);
      std::uint32_t kept[M] = {};
      if constexpr (kDropout) {
        const int head_index = static_cast<int>(block_y());
        Accumulator dropped[M][N];
        for (int m = 0; m < M; ++m) {
          kept[m] = kept_elements_transposed<N>(mask, q0, warp_k0 + 16 * m, head_index);
          for (int n = 0; n < N; ++n) dropped[m][n] = p[m][n];
          drop_elements(dropped[m], kept[m], 1.0f);
        }
        as_operands<Element>(rounded, dropped);
      } else {
        as_operands<Element>(rounded, p);
      }
      multiply_by_columns<Element>(dv, rounded, d_outs(stage), step);

      Accumulator ds[M][N] = {};
      multiply_by_rows<Element, kHeadTile / 16>(ds, value_rows, d_outs(stage), step);
      if constexpr (kDropout) {
        for (int m = 0; m < M; ++m) drop_elements(ds[m], kept[m], mask.scale);
      }
      score_gradients_transposed(ds, p, dot_stages + stage * kQueries + step);
      as_operands<Element>(rounded, ds);
      multiply_by_columns<Element>(dk, rounded, queries(stage), step);
    }
  }

  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < kHeadTile / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        dk[m][n].v[i] *= scale;
        if constexpr (kDropout) dv[m][n].v[i] *= mask.scale;
      }
    }
  }
  Element* d_k = d_qkv + shape.qkv_offset(block_z(), warp_k0, block_y()) + C;
  store_rows(d_k, stride, T - warp_k0, HS, dk, keys, warp_row);
  store_rows(d_k + C, stride, T - warp_k0, HS, dv, values, warp_row);
}

// ---- dQ ---------------------------------------------------------------------------------------

// As in the forward, but with half as many keys at a time in registers: S and dP both live there.
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

// S and dP of the same rows and keys become dS = P o (dP - D), in dp's place.
template <int M, int N>
__device__ __forceinline__ void score_gradients(Accumulator (&dp)[M][N],
                                                const Accumulator (&s)[M][N],
                                                const float (&lse)[M][2], const float (&dot)[M][2],
                                                float scale_log2) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      for (int i = 0; i < 4; ++i) {
        const float p = fast_exp2(s[m][n].v[i] * scale_log2 - lse[m][i / 2]);
        dp[m][n].v[i] = p * (dp[m][n].v[i] - dot[m][i / 2]);
      }
    }
  }
}

// Grid (query tiles, NH, B). Two blocks share a multiprocessor: up to 255 registers a thread.
template <class Element, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(128, 2) void flash_attention_backward_query_kernel(
    Element* d_qkv, const Element* d_out, const Element* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardQueryTiling<Element, kHeadTile>;
  using QueryTile = typename Tiling::QueryTile;
  using KeyTile = typename Tiling::KeyTile;
  constexpr int M = Tiling::kRowTiles;
  constexpr int N = Tiling::kStep / 8;
  constexpr int kKeys = Tiling::kKeys;

  SharedMemory shared;
  const QueryTile queries{shared.take<Element>(QueryTile::kElements)};
  const QueryTile d_outs{shared.take<Element>(QueryTile::kElements)};
  Element* key_stages = shared.take<Element>(2 * KeyTile::kElements);
  Element* value_stages = shared.take<Element>(2 * KeyTile::kElements);

  const BackwardHead<Element> head(d_out, qkv, terms, doc_start, shape, block_z(), block_y());
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = (grid_x() - 1 - block_x()) * Tiling::kQueries;  // long rows first
  const int last_query = (q0 + Tiling::kQueries < T ? q0 + Tiling::kQueries : T) - 1;
  const int first_tile = visibility.first_key(q0) / kKeys;
  const int last_tile = last_query / kKeys;

  const auto keys = [&](int stage) { return KeyTile{key_stages + stage * KeyTile::kElements}; };
  const auto values = [&](int stage) { return KeyTile{value_stages + stage * KeyTile::kElements}; };
  const auto load_keys = [&](int tile) {  // into stage tile & 1
    const int stage = tile & 1;
    const Element* k = head.qkv + tile * kKeys * stride + C;
    const int rows = T - tile * kKeys;
    load_tile_async<Tiling::kThreads>(keys(stage), k, stride, rows, HS);
    load_tile_async<Tiling::kThreads>(values(stage), k + C, stride, rows, HS);
    copy_async_commit();
  };
  load_tile_async<Tiling::kThreads>(queries, head.qkv + q0 * stride, stride, T - q0, HS);
  load_tile_async<Tiling::kThreads>(d_outs, head.d_out + q0 * C, C, T - q0, HS);
  load_keys(last_tile);
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
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < 2; ++r) {
      const int query = warp_q0 + 16 * m + 8 * r + tile_row();
      lse[m][r] = head.lse_log2[query];
      dot[m][r] = head.dot[query];
    }
  }
  Accumulator dq[M][kHeadTile / 8] = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.of_row(block_z());

  for (int tile = last_tile; tile >= first_tile; --tile) {
    const int stage = tile & 1;
    copy_async_wait<0>();
    block_barrier();
    if (tile > first_tile) load_keys(tile - 1);

    for (int step = 0; step < kKeys; step += Tiling::kStep) {
      const int k0 = tile * kKeys + step;
      const int k1 = k0 + Tiling::kStep - 1;
      if (visibility.none_visible(warp_q0, warp_q1, k0, k1)) continue;
      Accumulator s[M][N] = {};
      Accumulator ds[M][N] = {};
      multiply_by_rows<Element, kHeadTile / 16>(s, q, keys(stage), step);
      multiply_by_rows<Element, kHeadTile / 16>(ds, g, values(stage), step);
      if (!visibility.all_visible(warp_q0, warp_q1, k0, k1)) {
        mask_scores(s, visibility, warp_q0, k0);
      }
      if constexpr (kDropout) {
        const int head_index = static_cast<int>(block_y());
        for (int m = 0; m < M; ++m) {
          const std::uint32_t kept = kept_elements<N>(mask, warp_q0 + 16 * m, k0, head_index);
          drop_elements(ds[m], kept, mask.scale);
        }
      }
      score_gradients(ds, s, lse, dot, scale * kLog2E);
      OperandA rounded[M][N / 2];
      as_operands<Element>(rounded, ds);
      multiply_by_columns<Element>(dq, rounded, keys(stage), step);
    }
  }

  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < kHeadTile / 8; ++n) {
      for (int i = 0; i < 4; ++i) dq[m][n].v[i] *= scale;
    }
  }
  store_rows(d_qkv + shape.qkv_offset(block_z(), warp_q0, block_y()), stride, T - warp_q0, HS, dq,
             queries, warp_row);
}

template <class Element, bool kDropout>
void launch_flash_backward(Element* d_qkv, const Element* d_out, const Element* qkv,
                           const RowTerms& terms, const std::int32_t* doc_start,
                           const AttentionShape& shape, const Dropout& dropout, Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    const float scale = attention_scale(shape.HS);
    using ByKey = FlashBackwardKeyTiling<Element, kHeadTile, kDropout>;
    launch(flash_attention_backward_key_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, ByKey::kKeys), shape.NH, shape.B}, ByKey::kThreads,
           ByKey::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale, dropout);

    using ByQuery = FlashBackwardQueryTiling<Element, kHeadTile>;
    launch(flash_attention_backward_query_kernel<Element, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, ByQuery::kQueries), shape.NH, shape.B}, ByQuery::kThreads,
           ByQuery::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
  });
}

}  // namespace llmc
