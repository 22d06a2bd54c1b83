// Attention of prompts with fused multiply-adds in fp32: the loop of flash_attention_forward_fma.h,
// with queries that begin at any position and keys and values from a cache.
//
// A block processes kQueries queries of a tile and one head. Tiles of keys begin at multiples of
// kKeys and are processed in ascending order. A tile of keys that a query does not see multiplies
// the query's sums by 2^0 and adds zeros, so its bits do not depend on the block's other queries.
// The zeros are products of a weight of 0 and a value, which must be finite: others are replaced
// before, in the tiles that not all queries see. Codes become numbers when a tile is loaded.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"
#include "llmc/ops/attention/prompt_attention_tile.h"

namespace llmc {

// Whether a number in rows first .. of the tile is infinite or NaN. The block's threads share the
// rows: each one returns what its own part has.
template <class Tile>
__device__ __forceinline__ bool has_infinite_part(const Tile& tile, int first) {
  constexpr int N = kAccessWidth, kVectors = Tile::kColumns / N;
  Floats<N> zeros;  // 0 * x is NaN if x is not finite
  for (int i = first * kVectors + fma_thread(); i < Tile::kRows * kVectors; i += kFmaThreads) {
    zeros += 0.0f * load_floats<N>(tile.row(i / kVectors) + i % kVectors * N);
  }
  return !(sum_of(zeros) == 0.0f);
}

// Replaces the infinities and NaNs in rows first .. of a tile of values by 0. The sums of queries
// that see one become NaN. Row r of the sums sees rows up to last_visible + r of the tile.
template <class Block, class Tile>
__device__ LLMC_INLINE_ON_GPU void replace_infinite_values(Block& sums, const Tile& values,
                                                           int last_visible, int first) {
  constexpr int N = kAccessWidth, kVectors = Tile::kColumns / N;
  for (int key = first; key < Tile::kRows; ++key) {
    for (int g = 0; g < sums.G; ++g) {
      const auto zeros = 0.0f * load_floats<kFmaWidth>(values.row(key) + sums.column(g));
      for (int r = 0; r < sums.R; ++r) {
        if (key <= last_visible + sums.row(r)) sums.v[r][g] += zeros;
      }
    }
  }
  block_barrier();
  for (int i = first * kVectors + fma_thread(); i < Tile::kRows * kVectors; i += kFmaThreads) {
    float* const vector = values.row(i / kVectors) + i % kVectors * N;
    for (int k = 0; k < N; ++k) vector[k] = 0.0f * vector[k] == 0.0f ? vector[k] : 0.0f;
  }
  block_barrier();
}

// Grid (tiles * parts of a tile, NH).
template <class T, class KV, int kHeadTile>
__global__ __launch_bounds__(kFmaThreads) void prompt_attention_fma_kernel(
    PromptTensors<T, KV> tensors) {
  using Tiling = FlashForwardFmaTiling<kHeadTile>;
  constexpr int kQueries = Tiling::kQueries, kKeys = Tiling::kKeys;
  constexpr int kParts = kPromptTileRows / kQueries;
  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::ValueTile values{shared.take<float>(Tiling::ValueTile::kElements)};
  const typename Tiling::ScoreTile scores{shared.take<float>(Tiling::ScoreTile::kElements)};
  float* row_factor = shared.take<float>(kQueries);

  wait_for_previous_launch();
  allow_next_launch();
  const PromptTile work = tensors.tiles[block_x() / kParts];
  const int first = static_cast<int>(block_x() % kParts) * kQueries;
  const int rows = work.rows - first < kQueries ? work.rows - first : kQueries;
  if (rows <= 0) return;
  const std::int64_t C = tensors.C;
  const int HS = tensors.HS;
  const int q0 = work.first_position + first;
  const int num_keys = q0 + rows;
  const Visibility visibility{nullptr, num_keys};
  const std::int64_t head = block_y() * HS;
  const std::int64_t offset = (work.first_row + first) * C + head;
  const std::int64_t cache = work.slot * tensors.T_max * C + head;
  // The scales of rows k0 .. of a cache.
  const auto scaling = [&](const float* scales, int k0) {
    if constexpr (kIsQuantized<KV>) {
      return ScaledRows{scales + (work.slot * tensors.T_max + k0) * grid_y() + block_y(), grid_y()};
    } else {
      return UnscaledRows();
    }
  };
  const int depth = kOneThreadBlocks ? HS : kHeadTile;  // a GPU unrolls the products over it

  load_tile(queries, tensors.q + offset, C, rows, HS);
  FmaBlock<kQueries, kHeadTile> o;
  RowSoftmax<kQueries> softmax;
  softmax.clear();
  for (int k0 = 0; k0 < num_keys; k0 += kKeys) {
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys, tensors.keys + cache + k0 * C, C, num_keys - k0, HS,
                         scaling(tensors.key_scales, k0));
    load_tile(values, tensors.values + cache + k0 * C, C, num_keys - k0, HS,
              scaling(tensors.value_scales, k0));
    block_barrier();
    // From this row of the tile on, not all queries see a value.
    const int first_hidden = q0 + 1 > k0 ? q0 + 1 - k0 : 0;
    if (first_hidden < kKeys && block_any(has_infinite_part(values, first_hidden))) {
      replace_infinite_values(o, values, q0 - k0, first_hidden);
    }
    FmaBlock<kQueries, kKeys> s;
    multiply_add(s, queries, keys, depth);
    scale_and_mask(s, tensors.scale_log2, visibility, k0 + kKeys - 1 > q0, q0, k0);
    store_block(scores, s);
    block_barrier();
    softmax.step(scores, row_factor);
    block_barrier();
    multiply_rows(o, row_factor);
    multiply_add(o, scores, values, kKeys, HS);
  }
  block_barrier();
  for (int i = 0; i < softmax.kPasses; ++i) {
    if (softmax.lane_in_row() == 0) row_factor[softmax.row(i)] = 1.0f / softmax.sum[i];
  }
  block_barrier();
  multiply_rows(o, row_factor);
  store_block(tensors.out + offset, C, rows, HS, o, 1.0f);
}

template <class T, class KV>
void launch_prompt_attention_fma(const PromptTensors<T, KV>& tensors, std::int64_t num_tiles,
                                 std::int64_t NH, Stream& stream) {
  dispatch_fma_head_tile(tensors.HS, [&]<int kHeadTile>() {
    using Tiling = FlashForwardFmaTiling<kHeadTile>;
    constexpr int kParts = kPromptTileRows / Tiling::kQueries;
    launch_overlapped(prompt_attention_fma_kernel<T, KV, kHeadTile>,
                      Grid{num_tiles * kParts, NH, 1}, kFmaThreads, Tiling::kSharedBytes, stream,
                      tensors);
  });
}

}  // namespace llmc
