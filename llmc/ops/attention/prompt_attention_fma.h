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
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"
#include "llmc/ops/attention/prompt_attention_one_thread.h"
#include "llmc/ops/attention/prompt_attention_tile.h"
#include "llmc/ops/attention/prompt_attention_values.h"

namespace llmc {

template <class T, class KV, int kHeadTile>
using PromptFmaTiling =
    std::conditional_t<kOneThreadBlocks, OneThreadTiling<PromptElement<T, KV>, kHeadTile>,
                       FlashForwardFmaTiling<kHeadTile>>;

// Attends the queries of a block's part of a tile.
template <int kHeadTile, class T, class KV>
__device__ __forceinline__ void attend_in_threads(const PromptTensors<T, KV>& tensors,
                                                  const PromptPart& part) {
  using Tiling = FlashForwardFmaTiling<kHeadTile>;
  constexpr int kQueries = Tiling::kQueries, kKeys = Tiling::kKeys;
  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::KeyTile keys{shared.take<float>(Tiling::KeyTile::kElements)};
  const typename Tiling::ValueTile values{shared.take<float>(Tiling::ValueTile::kElements)};
  const typename Tiling::ScoreTile scores{shared.take<float>(Tiling::ScoreTile::kElements)};
  float* row_factor = shared.take<float>(kQueries);

  const std::int64_t C = tensors.C;
  const int HS = tensors.HS, q0 = part.q0;
  const Visibility visibility{nullptr, part.num_keys};

  load_tile(queries, tensors.q + part.offset, C, part.rows, HS);
  FmaBlock<kQueries, kHeadTile> o;
  RowSoftmax<kQueries> softmax;
  softmax.clear();
  for (int k0 = 0; k0 < part.num_keys; k0 += kKeys) {
    block_barrier();  // the previous tile has been read
    load_tile_transposed(keys, tensors.keys + part.cache + k0 * C, C, part.num_keys - k0, HS,
                         part.template scaling<KV>(tensors.key_scales, k0));
    load_tile(values, tensors.values + part.cache + k0 * C, C, part.num_keys - k0, HS,
              part.template scaling<KV>(tensors.value_scales, k0));
    block_barrier();
    keep_finite(o, values, q0, k0);
    FmaBlock<kQueries, kKeys> s;
    multiply_add(s, queries, keys, kHeadTile);
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
  make_zeros_positive(o);
  store_block(tensors.out + part.offset, C, part.rows, HS, o, 1.0f);
}

// Grid (tiles * parts of a tile, NH).
template <class T, class KV, int kHeadTile>
__global__ __launch_bounds__(kFmaThreads) void prompt_attention_fma_kernel(
    PromptTensors<T, KV> tensors) {
  wait_for_previous_launch();
  allow_next_launch();
  const PromptPart part(tensors, PromptFmaTiling<T, KV, kHeadTile>::kQueries);
  if (part.rows <= 0) return;
  if constexpr (kOneThreadBlocks) {
    attend_in_one_thread<kHeadTile>(tensors, part);
  } else {
    attend_in_threads<kHeadTile>(tensors, part);
  }
}

template <class T, class KV>
void launch_prompt_attention_fma(const PromptTensors<T, KV>& tensors, std::int64_t num_tiles,
                                 std::int64_t NH, Stream& stream) {
  dispatch_fma_head_tile(tensors.HS, [&]<int kHeadTile>() {
    using Tiling = PromptFmaTiling<T, KV, kHeadTile>;
    constexpr int kParts = kPromptTileRows / Tiling::kQueries;
    launch_overlapped(prompt_attention_fma_kernel<T, KV, kHeadTile>,
                      Grid{num_tiles * kParts, NH, 1}, kFmaThreads, Tiling::kSharedBytes, stream,
                      tensors);
  });
}

}  // namespace llmc
