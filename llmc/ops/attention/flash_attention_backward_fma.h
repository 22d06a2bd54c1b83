// Flash attention, backward, with fused multiply-adds in IEEE fp32: the two kernels of
// flash_attention_backward.h with accurate_exp2. T is the type of the tensors. Scores and their
// gradients pass through shared memory from the threads that compute them to those that sum over
// them.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_backward_head.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/attention_tiles_fma.h"

namespace llmc {

// Replaces a thread's scores s and dp by P and dS = P o (dP - D). Rows are queries from
// first_query, columns are keys from first_key. Rows beyond T have an infinite log-sum-exp, so
// P = 0 there. With dropout, dP is that of the kept probabilities, and s ends as the terms of dV:
// kept P times the scale.
template <bool kDropout, int kRows, int kColumns, class T>
__device__ LLMC_INLINE_ON_GPU void score_gradients_fma(
    FmaBlock<kRows, kColumns>& s, FmaBlock<kRows, kColumns>& dp, const BackwardHead<T>& head,
    float scale_log2, bool needs_mask, int first_query, int first_key, const DropoutMask& mask) {
  for (int r = 0; r < s.R; ++r) {
    const int query = first_query + s.row(r);
    const int min_key = needs_mask ? head.visibility.first_key(query) : 0;
    const float lse = head.lse_log2[query];
    const float dot = head.dot[query];
    for (int g = 0; g < s.G; ++g) {
      const int first_of_group = first_key + s.column(g);
      Floats<kFmaWidth> factors(1.0f);
      if constexpr (kDropout)
        factors = dropout_factors(mask, query, first_of_group, static_cast<int>(block_y()));
      auto& score = s.v[r][g];
      auto& gradient = dp.v[r][g];
      auto p = accurate_exp2(fma(score, scale_log2, -lse));
      if (needs_mask) p = keep_range(p, min_key - first_of_group, query - first_of_group, 0.0f);
      gradient = p * (factors * gradient - dot);
      score = p * factors;
    }
  }
}

// ---- dK and dV --------------------------------------------------------------------------------

template <int kHeadTile>
struct FlashBackwardKeyFmaTiling {
  static constexpr int kKeys = kHeadTile > 64 ? 32 : 64;
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
template <class T, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_backward_key_fma_kernel(
    T* d_qkv, const T* d_out, const T* qkv, RowTerms terms, const std::int32_t* doc_start,
    AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardKeyFmaTiling<kHeadTile>;
  constexpr int kKeys = Tiling::kKeys;
  constexpr int kQueries = Tiling::kQueries;

  SharedMemory shared;
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::KeyTile values{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::QueryTile d_outs{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::ScoreTile probabilities{shared.take<float>(Tiling::ScoreTile::kElements)};
  const typename Tiling::ScoreTile d_scores{shared.take<float>(Tiling::ScoreTile::kElements)};

  const BackwardHead<T> head(d_out, qkv, terms, doc_start, shape, static_cast<int>(block_z()),
                             static_cast<int>(block_y()));
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T_ = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int k0 = static_cast<int>(block_x()) * kKeys;
  const int last_key = (k0 + kKeys < T_ ? k0 + kKeys : T_) - 1;

  load_tile_transposed(keys, head.qkv + k0 * stride + C, stride, T_ - k0, HS);
  load_tile_transposed(values, head.qkv + k0 * stride + 2 * C, stride, T_ - k0, HS);
  FmaBlock<kKeys, kHeadTile> dk;
  FmaBlock<kKeys, kHeadTile> dv;
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  // Queries before k0 and documents that begin after last_key do not see the keys.
  for (int q0 = k0; q0 < T_ && visibility.first_key(q0) <= last_key; q0 += kQueries) {
    block_barrier();  // the previous tile has been read
    load_tile(queries, head.qkv + q0 * stride, stride, T_ - q0, HS);
    load_tile(d_outs, head.d_out + q0 * C, C, T_ - q0, HS);
    block_barrier();
    FmaBlock<kQueries, kKeys> p;
    FmaBlock<kQueries, kKeys> ds;
    multiply_add(p, queries, keys, kHeadTile);
    multiply_add(ds, d_outs, values, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    score_gradients_fma<kDropout>(p, ds, head, scale * kLog2E, needs_mask, q0, k0, mask);
    store_block(probabilities, p);
    store_block(d_scores, ds);
    block_barrier();
    multiply_add_transposed(dv, probabilities, d_outs, kQueries, HS);
    multiply_add_transposed(dk, d_scores, queries, kQueries, HS);
  }

  T* d_k = d_qkv + shape.qkv_offset(block_z(), k0, block_y()) + C;
  store_block(d_k, stride, T_ - k0, HS, dk, scale);
  store_block(d_k + C, stride, T_ - k0, HS, dv, 1.0f);
}

// ---- dQ ---------------------------------------------------------------------------------------

template <int kHeadTile>
struct FlashBackwardQueryFmaTiling {
  static constexpr int kQueries = kHeadTile > 64 ? 32 : 64;
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
template <class T, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_backward_query_fma_kernel(
    T* d_qkv, const T* d_out, const T* qkv, RowTerms terms, const std::int32_t* doc_start,
    AttentionShape shape, float scale, Dropout dropout) {
  using Tiling = FlashBackwardQueryFmaTiling<kHeadTile>;
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

  const BackwardHead<T> head(d_out, qkv, terms, doc_start, shape, static_cast<int>(block_z()),
                             static_cast<int>(block_y()));
  const Visibility& visibility = head.visibility;
  const std::int64_t C = shape.C();
  const std::int64_t stride = shape.qkv_stride();
  const int T_ = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = static_cast<int>(grid_x() - 1 - block_x()) * kQueries;  // most keys first
  const int last_query = (q0 + kQueries < T_ ? q0 + kQueries : T_) - 1;

  load_tile(queries, head.qkv + q0 * stride, stride, T_ - q0, HS);
  load_tile(d_outs, head.d_out + q0 * C, C, T_ - q0, HS);
  FmaBlock<kQueries, kHeadTile> dq;
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(block_z());

  const int first_tile = visibility.first_key(q0) / kKeys;
  for (int k0 = first_tile * kKeys; k0 <= last_query; k0 += kKeys) {
    const T* k = head.qkv + k0 * stride + C;
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys_transposed, k, stride, T_ - k0, HS);
    load_tile_transposed(values_transposed, k + C, stride, T_ - k0, HS);
    load_tile(keys, k, stride, T_ - k0, HS);
    block_barrier();
    FmaBlock<kQueries, kKeys> p;
    FmaBlock<kQueries, kKeys> ds;
    multiply_add(p, queries, keys_transposed, kHeadTile);
    multiply_add(ds, d_outs, values_transposed, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    score_gradients_fma<kDropout>(p, ds, head, scale * kLog2E, needs_mask, q0, k0, mask);
    store_block(d_scores, ds);
    block_barrier();
    multiply_add(dq, d_scores, keys, kKeys, HS);
  }
  store_block(d_qkv + shape.qkv_offset(block_z(), q0, block_y()), stride, T_ - q0, HS, dq, scale);
}

template <class T, bool kDropout>
void launch_flash_backward_fma(T* d_qkv, const T* d_out, const T* qkv, const RowTerms& terms,
                               const std::int32_t* doc_start, const AttentionShape& shape,
                               float scale, const Dropout& dropout, Stream& stream) {
  dispatch_fma_head_tile(shape.HS, [&]<int kHeadTile>() {
    using KeyTiling = FlashBackwardKeyFmaTiling<kHeadTile>;
    launch(flash_attention_backward_key_fma_kernel<T, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, KeyTiling::kKeys), shape.NH, shape.B}, kFmaThreads,
           KeyTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
    using QueryTiling = FlashBackwardQueryFmaTiling<kHeadTile>;
    launch(flash_attention_backward_query_fma_kernel<T, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, QueryTiling::kQueries), shape.NH, shape.B}, kFmaThreads,
           QueryTiling::kSharedBytes, stream, d_qkv, d_out, qkv, terms, doc_start, shape, scale,
           dropout);
  });
}

}  // namespace llmc
