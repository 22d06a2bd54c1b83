// Attention of prompts on tensor cores: the building blocks of flash_attention_forward.h, with
// queries that begin at any position and keys and values from a cache.
//
// A block processes the 64 queries of a tile and one head, 16 rows per warp. Tiles of 64 keys begin
// at multiples of 64 and are processed in ascending order. Every query sees key 0, so the greatest
// score of a row is finite from the first tile on.
//
// Values that a query does not see are multiplied by a weight of 0, so they must be finite: others
// are replaced before, in the tiles that not all queries see.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles.h"
#include "llmc/ops/attention/flash_attention_forward.h"
#include "llmc/ops/attention/prompt_attention_keys.h"
#include "llmc/ops/attention/prompt_attention_tile.h"

namespace llmc {

// Whether a number in rows first .. of the tile is infinite or NaN. The block's threads share the
// rows: each one returns what its own part has.
template <int kThreads, class Tile>
__device__ __forceinline__ bool has_infinite_part(const Tile& tile, int first) {
  bool is_infinite = false;
  for (int i = first * Tile::kChunks + thread_index(); i < Tile::kRows * Tile::kChunks;
       i += kThreads) {
    const auto chunk = load_vec<8>(tile.chunk(i / Tile::kChunks, i % Tile::kChunks));
    for (int k = 0; k < 8; ++k) is_infinite |= !(0.0f * to_float(chunk[k]) == 0.0f);
  }
  return is_infinite;
}

// Replaces the infinities and NaNs in rows first .. of a tile of values by 0. The sums of queries
// that see one become NaN. Row r of the warp's sums sees rows up to last_visible + r of the tile.
template <int kThreads, int N, class Tile>
__device__ __forceinline__ void replace_infinite_values(Accumulator (&sums)[1][N],
                                                        const Tile& values, int last_visible,
                                                        int first) {
  for (int key = first; key < Tile::kRows; ++key) {
    for (int n = 0; n < N; ++n) {
      const auto pair = load_vec<2>(values.chunk(key, n) + tile_column());
      for (int i = 0; i < 4; ++i) {
        // 0 * x is NaN if x is not finite
        if (key <= last_visible + tile_row() + i / 2 * 8) {
          sums[0][n].v[i] += 0.0f * to_float(pair[i % 2]);
        }
      }
    }
  }
  block_barrier();
  for (int i = first * Tile::kChunks + thread_index(); i < Tile::kRows * Tile::kChunks;
       i += kThreads) {
    auto* const address = values.chunk(i / Tile::kChunks, i % Tile::kChunks);
    auto chunk = load_vec<8>(address);
    for (int k = 0; k < 8; ++k) {
      if (!(0.0f * to_float(chunk[k]) == 0.0f)) chunk[k] = {};
    }
    store_vec(address, chunk);
  }
  block_barrier();
}

// Grid (tiles, NH).
template <class Element, class KV, int kHeadTile>
__global__ __launch_bounds__(128, 2) void prompt_attention_mma_kernel(
    PromptTensors<Element, KV> tensors) {
  using Tiling = PromptTiling<Element, KV, kHeadTile>;
  constexpr int kKeys = Tiling::kKeys;
  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<Element>(Tiling::QueryTile::kElements)};
  typename Tiling::Stages stages(shared);

  wait_for_previous_launch();
  allow_next_launch();
  const PromptTile work = tensors.tiles[block_x()];
  if (work.rows <= 0) return;
  const std::int64_t C = tensors.C;
  const int HS = tensors.HS;
  const int num_keys = work.first_position + work.rows;
  const std::int64_t offset = work.first_row * C + block_y() * HS;
  const auto keys = [&](int stage) { return stages.keys(stage); };
  const auto values = [&](int stage) { return stages.values(stage); };
  stages.select(tensors, work.slot, num_keys);
  load_tile_async<Tiling::kThreads>(queries, tensors.q + offset, C, work.rows, HS);
  copy_async_commit();
  stages.start_keys(0, 0);
  stages.start_values(0, 0);
  stages.finish_values(0);
  copy_async_wait<0>();
  block_barrier();

  const int warp_row = warp_in_block() * 16;
  const int warp_q0 = work.first_position + warp_row;
  const Visibility visibility{nullptr, num_keys};
  RegisterOperands<1, kHeadTile / 16> q;
  q.load(queries, warp_row);
  Accumulator o[1][kHeadTile / 8] = {};
  SoftmaxRow softmax[2];
  for (int k0 = 0, stage = 0; k0 < num_keys; k0 += kKeys, stage ^= 1) {
    stages.wait();
    block_barrier();
    const bool has_next = k0 + kKeys < num_keys;
    if (has_next) stages.start_keys(k0 + kKeys, stage ^ 1);
    // From this row of the tile on, not all queries see a value.
    const int first_query = work.first_position - k0;
    const int first_hidden = first_query + 1 > 0 ? first_query + 1 : 0;
    if (first_hidden < kKeys &&
        block_any(has_infinite_part<Tiling::kThreads>(values(stage), first_hidden))) {
      replace_infinite_values<Tiling::kThreads>(o, values(stage), first_query + warp_row,
                                                first_hidden);
    }
    if (visibility.none_visible(warp_q0, warp_q0 + 15, k0, k0 + kKeys - 1)) {
      if (has_next) stages.start_values(k0 + kKeys, stage ^ 1);
      if (has_next) stages.finish_values(stage ^ 1);
      continue;
    }
    Accumulator s[1][kKeys / 8] = {};
    multiply_by_rows<Element, kHeadTile / 16>(s, q, keys(stage), 0);
    if (has_next) stages.start_values(k0 + kKeys, stage ^ 1);
    stages.scale_scores(s[0], stage);
    if (k0 + kKeys - 1 > warp_q0) mask_scores(s, visibility, warp_q0, k0);
    softmax_step(s[0], o[0], softmax, tensors.scale_log2);
    OperandA p[1][kKeys / 16];
    as_operands<Element>(p, s);
    multiply_by_columns<Element>(o, p, values(stage), 0);
    if (has_next) stages.finish_values(stage ^ 1);
  }
  if (warp_row >= work.rows) return;  // only padding
  for (int r = 0; r < 2; ++r) {
    const float inverse = 1.0f / quad_sum(softmax[r].sum);
    for (int n = 0; n < kHeadTile / 8; ++n) {
      o[0][n].v[2 * r] *= inverse;
      o[0][n].v[2 * r + 1] *= inverse;
    }
  }
  store_rows(tensors.out + offset + warp_row * C, C, work.rows - warp_row, HS, o, queries,
             warp_row);
}

template <class Element, class KV>
void launch_prompt_attention_mma(const PromptTensors<Element, KV>& tensors, std::int64_t num_tiles,
                                 std::int64_t NH, Stream& stream) {
  dispatch_head_tile(tensors.HS, [&]<int kHeadTile>() {
    using Tiling = PromptTiling<Element, KV, kHeadTile>;
    launch_overlapped(prompt_attention_mma_kernel<Element, KV, kHeadTile>, Grid{num_tiles, NH, 1},
                      Tiling::kThreads, Tiling::kSharedBytes, stream, tensors);
  });
}

}  // namespace llmc
