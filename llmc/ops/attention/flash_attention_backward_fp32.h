// Flash attention, backward, in IEEE fp32: the two kernels of flash_attention_backward.h with fused
// multiply-adds and std::exp2. Scores and their gradients pass through shared memory from the
// threads that compute them to those that sum over them.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_backward_head.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/attention_tiles_fp32.h"

namespace llmc {

// Replaces a thread's scores s and dp by P and dS = P o (dP - D). Rows are queries from
// first_query, columns are keys from first_key. Rows beyond T have an infinite log-sum-exp, so
// P = 0 there. With dropout, dP is that of the kept probabilities, and s ends as the terms of dV:
// kept P times the scale.
template <bool kDropout, int kRows, int kColumns>
__device__ __forceinline__ void score_gradients_fp32(
    FmaBlock<kRows, kColumns>& s, FmaBlock<kRows, kColumns>& dp, const BackwardHead<float>& head,
    float scale_log2, bool needs_mask, int first_query, int first_key, const DropoutMask& mask) {
  for (int r = 0; r < s.R; ++r) {
    const int query = first_query + s.row(r);
    const int min_key = needs_mask ? head.visibility.first_key(query) : 0;
    const float lse = head.lse_log2[query];
    const float dot = head.dot[query];
    for (int g = 0; g < s.G; ++g) {
      PhiloxBits bits{};
      if constexpr (kDropout) {
        bits =
            mask.bits(query, (first_key + s.column(g)) / 4, static_cast<std::int64_t>(block_y()));
      }
      for (int j = 0; j < 4; ++j) {
        const int key = first_key + s.column(g) + j;
        const bool is_masked = needs_mask && (key > query || key < min_key);
        float& p = s.v[r][g][j];
        p = is_masked ? 0.0f : std::exp2(p * scale_log2 - lse);
        const float dropout_factor = kDropout ? mask.factor(bits.words[j]) : 1.0f;
        dp.v[r][g][j] = p * (dropout_factor * dp.v[r][g][j] - dot);
        p *= dropout_factor;
      }
    }
  }
}

// ---- dK and dV --------------------------------------------------------------------------------

template <int kHeadTile>
struct FlashBackwardKeyFp32Tiling {
  static constexpr int kKeys = kHeadTile <= 64 ? 64 : 32;
  static constexpr int kQueries = 32;
  static_assert(kKeys % kQueries == 0 && kRowTermPadding % kQueries == 0);

  using KeyTile = PaddedTile<kHeadTile, kKeys>;  // transposed; for K and V
  using QueryTile = PaddedTile<kQueries, kHeadTile>;
  using ScoreTile = PaddedTile<kQueries, kKeys>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<float>(KeyTile::kElements)
                                                  .template add<float>(KeyTile::kElements)
                                                  .template add<float>(QueryTile::kElements)
                                                  .template add<float>(QueryTile::kElements)
                                                  .template add<float>(ScoreTile::kElements)
                                                  .template add<float>(ScoreTile::kElements)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// Grid (key tiles, NH, B).
template <int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_backward_key_fp32_kernel(
    float* d_qkv, const float* d_out, const float* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardKeyFp32Tiling<kHeadTile>;
  constexpr int kKeys = Tiling::kKeys;
  constexpr int kQueries = Tiling::kQueries;

  SharedMemory shared;
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::KeyTile values{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::QueryTile d_outs{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::ScoreTile probabilities{shared.take<float>(Tiling::ScoreTile::kElements)};
  const typename Tiling::ScoreTile d_scores{shared.take<float>(Tiling::ScoreTile::kElements)};

  const BackwardHead<float> head(d_out, qkv, terms, doc_start, shape, static_cast<int>(block_z()),
                                 static_cast<int>(block_y()));
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int k0 = static_cast<int>(block_x()) * kKeys;
  const int last_key = (k0 + kKeys < T ? k0 + kKeys : T) - 1;

  load_tile_transposed(keys, head.qkv + k0 * stride + C, stride, T - k0, HS);
  load_tile_transposed(values, head.qkv + k0 * stride + 2 * C, stride, T - k0, HS);
  FmaBlock<kKeys, kHeadTile> dk = {};
  FmaBlock<kKeys, kHeadTile> dv = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  // Queries before k0 and documents that begin after last_key do not see the keys.
  for (int q0 = k0; q0 < T && visibility.first_key(q0) <= last_key; q0 += kQueries) {
    block_barrier();  // the previous tile has been read
    load_tile(queries, head.qkv + q0 * stride, stride, T - q0, HS);
    load_tile(d_outs, head.d_out + q0 * C, C, T - q0, HS);
    block_barrier();
    FmaBlock<kQueries, kKeys> p = {};
    FmaBlock<kQueries, kKeys> ds = {};
    multiply_add(p, queries, keys, kHeadTile);
    multiply_add(ds, d_outs, values, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    score_gradients_fp32<kDropout>(p, ds, head, scale * kLog2E, needs_mask, q0, k0, mask);
    store_block(probabilities, p);
    store_block(d_scores, ds);
    block_barrier();
    multiply_add_transposed(dv, probabilities, d_outs, kQueries);
    multiply_add_transposed(dk, d_scores, queries, kQueries);
  }

  float* d_k = d_qkv + shape.qkv_offset(block_z(), k0, block_y()) + C;
  store_block(d_k, stride, T - k0, HS, dk, scale);
  store_block(d_k + C, stride, T - k0, HS, dv, 1.0f);
}

// ---- dQ ---------------------------------------------------------------------------------------

template <int kHeadTile>
struct FlashBackwardQueryFp32Tiling {
  static constexpr int kQueries = kHeadTile <= 64 ? 64 : 32;
  static constexpr int kKeys = 32;
  static_assert(kRowTermPadding % kQueries == 0);

  using QueryTile = PaddedTile<kQueries, kHeadTile>;
  using TransposedKeyTile = PaddedTile<kHeadTile, kKeys>;  // for Q K^T and dO V^T
  using KeyTile = PaddedTile<kKeys, kHeadTile>;            // for dS K
  using ScoreTile = PaddedTile<kQueries, kKeys>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<float>(QueryTile::kElements)
                                                  .template add<float>(QueryTile::kElements)
                                                  .template add<float>(TransposedKeyTile::kElements)
                                                  .template add<float>(TransposedKeyTile::kElements)
                                                  .template add<float>(KeyTile::kElements)
                                                  .template add<float>(ScoreTile::kElements)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// Grid (query tiles, NH, B).
template <int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_backward_query_fp32_kernel(
    float* d_qkv, const float* d_out, const float* qkv, RowTerms terms,
    const std::int32_t* doc_start, AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardQueryFp32Tiling<kHeadTile>;
  constexpr int kQueries = Tiling::kQueries;
  constexpr int kKeys = Tiling::kKeys;

  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::QueryTile d_outs{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::TransposedKeyTile keys_transposed{
      shared.take<float>(Tiling::TransposedKeyTile::kElements)};
  const typename Tiling::TransposedKeyTile values_transposed{
      shared.take<float>(Tiling::TransposedKeyTile::kElements)};
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::ScoreTile d_scores{shared.take<float>(Tiling::ScoreTile::kElements)};

  const BackwardHead<float> head(d_out, qkv, terms, doc_start, shape, static_cast<int>(block_z()),
                                 static_cast<int>(block_y()));
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = static_cast<int>(grid_x() - 1 - block_x()) * kQueries;  // most keys first
  const int last_query = (q0 + kQueries < T ? q0 + kQueries : T) - 1;

  load_tile(queries, head.qkv + q0 * stride, stride, T - q0, HS);
  load_tile(d_outs, head.d_out + q0 * C, C, T - q0, HS);
  FmaBlock<kQueries, kHeadTile> dq = {};
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  const int first_tile = visibility.first_key(q0) / kKeys;
  for (int k0 = first_tile * kKeys; k0 <= last_query; k0 += kKeys) {
    const float* k = head.qkv + k0 * stride + C;
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys_transposed, k, stride, T - k0, HS);
    load_tile_transposed(values_transposed, k + C, stride, T - k0, HS);
    load_tile(keys, k, stride, T - k0, HS);
    block_barrier();
    FmaBlock<kQueries, kKeys> p = {};
    FmaBlock<kQueries, kKeys> ds = {};
    multiply_add(p, queries, keys_transposed, kHeadTile);
    multiply_add(ds, d_outs, values_transposed, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    score_gradients_fp32<kDropout>(p, ds, head, scale * kLog2E, needs_mask, q0, k0, mask);
    store_block(d_scores, ds);
    block_barrier();
    multiply_add(dq, d_scores, keys, kKeys);
  }
  store_block(d_qkv + shape.qkv_offset(block_z(), q0, block_y()), stride, T - q0, HS, dq, scale);
}

template <bool kDropout>
void launch_flash_backward_fp32(float* d_qkv, const float* d_out, const float* qkv,
                                const RowTerms& terms, const std::int32_t* doc_start,
                                const AttentionShape& shape, const Dropout& dropout,
                                Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    const float scale = attention_scale(shape.HS);
    using KeyTiling = FlashBackwardKeyFp32Tiling<kHeadTile>;
    launch(flash_attention_backward_key_fp32_kernel<kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, KeyTiling::kKeys), shape.NH, shape.B}, kFmaThreads,
           KeyTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
    using QueryTiling = FlashBackwardQueryFp32Tiling<kHeadTile>;
    launch(flash_attention_backward_query_fp32_kernel<kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, QueryTiling::kQueries), shape.NH, shape.B}, kFmaThreads,
           QueryTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
  });
}

}  // namespace llmc
