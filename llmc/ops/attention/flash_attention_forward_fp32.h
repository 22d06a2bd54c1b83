// Flash attention, forward, in IEEE fp32: the algorithm of flash_attention_forward.h with fused
// multiply-adds, std::exp2, and tiles in ascending order of keys.
//
// A block processes 64 queries of one head. For each tile of keys, all 128 threads compute the
// scores in shared memory. Four neighbouring lanes then update each row's running softmax there,
// and all threads add P V to the output in their registers.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles_fp32.h"

namespace llmc {

template <int kHeadTile>
struct FlashForwardFp32Tiling {
  static constexpr int kQueries = 64;
  static constexpr int kKeys = kHeadTile <= 64 ? 64 : 32;

  using QueryTile = PaddedTile<kQueries, kHeadTile>;
  using KeyTile = PaddedTile<kHeadTile, kKeys>;  // transposed
  using ValueTile = PaddedTile<kKeys, kHeadTile>;
  using ScoreTile = PaddedTile<kQueries, kKeys>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<float>(QueryTile::kElements)
                                                  .template add<float>(KeyTile::kElements)
                                                  .template add<float>(ValueTile::kElements)
                                                  .template add<float>(ScoreTile::kElements)
                                                  .template add<float>(kQueries)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// The running softmax of the rows that this thread shares with its three neighbours: rows
// thread / 4, thread / 4 + 32, ...
template <int kRows>
struct RowSoftmax {
  static constexpr int kPasses = kRows / (kFmaThreads / 4);
  float max[kPasses];
  float sum[kPasses];

  __device__ static int row(int pass) { return thread_index() / 4 + pass * (kFmaThreads / 4); }

  __device__ void clear() {
    for (int i = 0; i < kPasses; ++i) {
      max[i] = kMinusInfinity;
      sum[i] = 0.0f;
    }
  }

  // Replaces the scores (in units of log2, -inf if masked) by p, and writes to corrections[row] the
  // factor of the row's earlier sums. A row that has seen no key yet keeps max = -inf and p = 0:
  // the offset is 0 then.
  template <class Tile>
  __device__ void step(const Tile& scores, float* corrections) {
    for (int i = 0; i < kPasses; ++i) {
      float* s = scores.row(row(i));
      const int part = thread_index() % 4;
      float row_max = max[i];
      for (int j = part; j < Tile::kColumns; j += 4) row_max = std::fmax(row_max, s[j]);
      row_max = quad_max(row_max);
      const float offset = row_max == kMinusInfinity ? 0.0f : row_max;
      const float correction = std::exp2(max[i] - offset);
      float tile_sum = 0.0f;
      for (int j = part; j < Tile::kColumns; j += 4) {
        s[j] = std::exp2(s[j] - offset);
        tile_sum += s[j];
      }
      max[i] = row_max;
      sum[i] = sum[i] * correction + quad_sum(tile_sum);
      if (part == 0) corrections[row(i)] = correction;
    }
  }
};

// Scales the scores to units of log2 and sets those of keys that a query does not see to -inf. Rows
// are queries from q0, columns are keys from k0.
template <int kRows, int kColumns>
__device__ __forceinline__ void scale_and_mask(FmaBlock<kRows, kColumns>& s, float scale_log2,
                                               const Visibility& visibility, bool needs_mask,
                                               int q0, int k0) {
  for (int r = 0; r < s.R; ++r) {
    const int query = q0 + s.row(r);
    const int min_key = needs_mask ? visibility.first_key(query) : 0;
    for (int g = 0; g < s.G; ++g) {
      for (int j = 0; j < 4; ++j) {
        const int key = k0 + s.column(g) + j;
        const bool is_masked = needs_mask && (key > query || key < min_key);
        s.v[r][g][j] = is_masked ? kMinusInfinity : s.v[r][g][j] * scale_log2;
      }
    }
  }
}

// Multiplies each row by its factor.
template <int kRows, int kColumns>
__device__ __forceinline__ void multiply_rows(FmaBlock<kRows, kColumns>& c,
                                              const float* row_factor) {
  for (int r = 0; r < c.R; ++r) {
    const float factor = row_factor[c.row(r)];
    for (int g = 0; g < c.G; ++g) {
      for (int j = 0; j < 4; ++j) c.v[r][g][j] *= factor;
    }
  }
}

// Grid (query tiles, NH, B).
template <int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_forward_fp32_kernel(
    float* out, float* lse, const float* qkv, const std::int32_t* doc_start, AttentionShape shape,
    float scale, Dropout dropout) {
  using Tiling = FlashForwardFp32Tiling<kHeadTile>;
  constexpr int kQueries = Tiling::kQueries;
  constexpr int kKeys = Tiling::kKeys;

  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::ValueTile values{shared.take<float>(Tiling::ValueTile::kElements)};
  const typename Tiling::ScoreTile scores{shared.take<float>(Tiling::ScoreTile::kElements)};
  float* row_factor = shared.take<float>(kQueries);

  const int b = static_cast<int>(block_z());
  const int h = static_cast<int>(block_y());
  const int T = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = static_cast<int>(grid_x() - 1 - block_x()) * kQueries;  // most keys first
  const int last_query = (q0 + kQueries < T ? q0 + kQueries : T) - 1;
  const Visibility visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T, T};
  const float scale_log2 = scale * kLog2E;

  load_tile(queries, qkv + shape.qkv_offset(b, q0, h), shape.qkv_stride(), T - q0, HS);
  FmaBlock<kQueries, kHeadTile> o = {};
  RowSoftmax<kQueries> softmax;
  softmax.clear();
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(b);

  const int first_tile = visibility.first_key(q0) / kKeys;
  for (int tile = first_tile; tile <= last_query / kKeys; ++tile) {
    const int k0 = tile * kKeys;
    const float* k = qkv + shape.qkv_offset(b, k0, h) + shape.C();
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys, k, shape.qkv_stride(), T - k0, HS);
    load_tile(values, k + shape.C(), shape.qkv_stride(), T - k0, HS);
    block_barrier();

    FmaBlock<kQueries, kKeys> s = {};
    multiply_add(s, queries, keys, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    scale_and_mask(s, scale_log2, visibility, needs_mask, q0, k0);
    store_block(scores, s);
    block_barrier();
    softmax.step(scores, row_factor);
    if constexpr (kDropout) drop_probabilities(scores, mask, q0, k0, h);
    block_barrier();
    multiply_rows(o, row_factor);
    multiply_add(o, scores, values, kKeys);
  }

  block_barrier();
  float* row_lse = lse + (b * shape.NH + h) * shape.T;
  for (int i = 0; i < softmax.kPasses; ++i) {
    const int row = softmax.row(i);
    if (thread_index() % 4 == 0) row_factor[row] = 1.0f / softmax.sum[i];
    if (thread_index() % 4 == 0 && q0 + row < T) {
      row_lse[q0 + row] = softmax.max[i] * kLn2 + std::log(softmax.sum[i]);
    }
  }
  block_barrier();
  multiply_rows(o, row_factor);
  store_block(out + shape.out_offset(b, q0, h), shape.C(), T - q0, HS, o,
              kDropout ? mask.scale : 1.0f);
}

template <bool kDropout>
void launch_flash_forward_fp32(float* out, float* lse, const float* qkv,
                               const std::int32_t* doc_start, const AttentionShape& shape,
                               const Dropout& dropout, Stream& stream) {
  dispatch_head_tile(shape.HS, [&]<int kHeadTile>() {
    using Tiling = FlashForwardFp32Tiling<kHeadTile>;
    launch(flash_attention_forward_fp32_kernel<kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, Tiling::kQueries), shape.NH, shape.B}, kFmaThreads,
           Tiling::kSharedBytes, stream, out, lse, qkv, doc_start, shape, attention_scale(shape.HS),
           dropout);
  });
}

}  // namespace llmc
