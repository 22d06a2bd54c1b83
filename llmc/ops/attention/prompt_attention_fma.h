// Attention of prompts with fused multiply-adds in fp32: the loop of flash_attention_forward_fma.h,
// with queries that begin at any position and keys and values from a cache.
//
// A block processes kQueries queries of a tile and one head. Tiles of keys begin at multiples of
// kKeys and are processed in ascending order. A tile of keys that a query does not see multiplies
// the query's sums by 2^0 and adds zeros, so its bits do not depend on the block's other queries.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"
#include "llmc/ops/attention/prompt_attention_tile.h"

namespace llmc {

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
  const int depth = kOneThreadBlocks ? HS : kHeadTile;  // a GPU unrolls the products over it

  load_tile(queries, tensors.q + offset, C, rows, HS);
  FmaBlock<kQueries, kHeadTile> o;
  RowSoftmax<kQueries> softmax;
  softmax.clear();
  for (int k0 = 0; k0 < num_keys; k0 += kKeys) {
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys, tensors.keys + cache + k0 * C, C, num_keys - k0, HS);
    load_tile(values, tensors.values + cache + k0 * C, C, num_keys - k0, HS);
    block_barrier();
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
