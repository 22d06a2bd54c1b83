// Flash attention, forward, with fused multiply-adds in IEEE fp32: the algorithm of
// flash_attention_forward.h with accurate_exp2, and tiles in ascending order of keys. T is the type
// of the tensors; loads widen it and stores round to it.
//
// A block processes kQueries queries of one head. For each tile of keys, all threads compute the
// scores in shared memory. Four neighbouring lanes (kRowLanes) then update each row's running
// softmax there, and all threads add P V to the output in their registers.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles_fma.h"

namespace llmc {

template <int kHeadTile>
struct FlashForwardFmaTiling {
  static constexpr int kQueries = 64;
  static constexpr int kKeys = kHeadTile > 64 ? 32 : 64;

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

// The sum and the largest of the values of the lanes that share a row.
__device__ __forceinline__ float row_lanes_sum(float x) {
  return kRowLanes == 1 ? x : quad_sum(x);
}
__device__ __forceinline__ float row_lanes_max(float x) {
  return kRowLanes == 1 ? x : quad_max(x);
}

// The running softmax of the rows that this thread shares with its neighbours: on a GPU rows
// thread / 4, thread / 4 + 32, ...
template <int kRows>
struct RowSoftmax {
  static constexpr int kRowThreads = kFmaThreads / kRowLanes;
  static constexpr int kPasses = kRows / kRowThreads;
  float max[kPasses];
  float sum[kPasses];

  __device__ static int row(int pass) {
    return bounded_fma_thread() / kRowLanes + pass * kRowThreads;
  }
  __device__ static int lane_in_row() { return bounded_fma_thread() % kRowLanes; }

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
  __device__ LLMC_INLINE_ON_GPU void step(const Tile& scores, float* corrections) {
    constexpr int W = kSoftmaxWidth;
    for (int i = 0; i < kPasses; ++i) {
      float* s = scores.row(row(i));
      const int first = lane_in_row() * W;
      Floats<W> lane_max(max[i]);
      for (int c = first; c < Tile::kColumns; c += kRowLanes * W) {
        lane_max = max_elements(lane_max, load_floats<W>(s + c));
      }
      const float row_max = row_lanes_max(max_of(lane_max));
      const float offset = row_max == kMinusInfinity ? 0.0f : row_max;
      const float correction = accurate_exp2(max[i] - offset);
      Floats<W> lane_sum;
      for (int c = first; c < Tile::kColumns; c += kRowLanes * W) {
        const Floats<W> p = accurate_exp2(load_floats<W>(s + c) - offset);
        lane_sum += p;
        store_floats(s + c, p);
      }
      max[i] = row_max;
      sum[i] = sum[i] * correction + row_lanes_sum(sum_of(lane_sum));
      if (lane_in_row() == 0) corrections[row(i)] = correction;
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
      const int key = k0 + s.column(g);
      s.v[r][g] = scale_log2 * s.v[r][g];
      if (needs_mask) {
        s.v[r][g] = keep_range(s.v[r][g], min_key - key, query - key, kMinusInfinity);
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
    for (int g = 0; g < c.G; ++g) c.v[r][g] = factor * c.v[r][g];
  }
}

// Grid (query tiles, NH, B).
template <class T, int kHeadTile, bool kDropout>
__global__ __launch_bounds__(kFmaThreads) void flash_attention_forward_fma_kernel(
    T* out, float* lse, const T* qkv, const std::int32_t* doc_start, AttentionShape shape,
    float scale, Dropout dropout) {
  using Tiling = FlashForwardFmaTiling<kHeadTile>;
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
  const int T_ = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = static_cast<int>(grid_x() - 1 - block_x()) * kQueries;  // most keys first
  const int last_query = (q0 + kQueries < T_ ? q0 + kQueries : T_) - 1;
  const Visibility visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T, T_};
  const float scale_log2 = scale * kLog2E;

  load_tile(queries, qkv + shape.qkv_offset(b, q0, h), shape.qkv_stride(), T_ - q0, HS);
  FmaBlock<kQueries, kHeadTile> o;
  RowSoftmax<kQueries> softmax;
  softmax.clear();
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(b);

  const int first_tile = visibility.first_key(q0) / kKeys;
  for (int tile = first_tile; tile <= last_query / kKeys; ++tile) {
    const int k0 = tile * kKeys;
    const T* k = qkv + shape.qkv_offset(b, k0, h) + shape.C();
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys, k, shape.qkv_stride(), T_ - k0, HS);
    load_tile(values, k + shape.C(), shape.qkv_stride(), T_ - k0, HS);
    block_barrier();

    FmaBlock<kQueries, kKeys> s;
    multiply_add(s, queries, keys, kHeadTile);
    const bool needs_mask = !visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    scale_and_mask(s, scale_log2, visibility, needs_mask, q0, k0);
    store_block(scores, s);
    block_barrier();
    softmax.step(scores, row_factor);
    if constexpr (kDropout) drop_probabilities(scores, mask, q0, k0, h);
    block_barrier();
    multiply_rows(o, row_factor);
    multiply_add(o, scores, values, kKeys, HS);
  }

  block_barrier();
  float* row_lse = lse + (b * shape.NH + h) * shape.T;
  for (int i = 0; i < softmax.kPasses; ++i) {
    const int row = softmax.row(i);
    if (softmax.lane_in_row() == 0) row_factor[row] = 1.0f / softmax.sum[i];
    if (softmax.lane_in_row() == 0 && q0 + row < T_) {
      row_lse[q0 + row] = softmax.max[i] * kLn2 + std::log(softmax.sum[i]);
    }
  }
  block_barrier();
  multiply_rows(o, row_factor);
  store_block(out + shape.out_offset(b, q0, h), shape.C(), T_ - q0, HS, o,
              kDropout ? mask.scale : 1.0f);
}

template <class T, bool kDropout>
void launch_flash_forward_fma(T* out, float* lse, const T* qkv, const std::int32_t* doc_start,
                              const AttentionShape& shape, float scale, const Dropout& dropout,
                              Stream& stream) {
  dispatch_fma_head_tile(shape.HS, [&]<int kHeadTile>() {
    using Tiling = FlashForwardFmaTiling<kHeadTile>;
    launch(flash_attention_forward_fma_kernel<T, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, Tiling::kQueries), shape.NH, shape.B}, kFmaThreads,
           Tiling::kSharedBytes, stream, out, lse, qkv, doc_start, shape, scale, dropout);
  });
}

}  // namespace llmc
