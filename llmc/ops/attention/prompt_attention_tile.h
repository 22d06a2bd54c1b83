// Shared by the kernels of prompt_attention.h: their unit of work and their tensors.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/cache_rows.h"

namespace llmc {

// The largest number of queries in a tile.
inline constexpr int kPromptTileRows = 64;

// Queries of one sequence: rows first_row .. first_row + rows - 1 of q, of the tokens at
// first_position .. of sequence `slot`. rows is at most kPromptTileRows; a tile of 0 rows is empty.
struct PromptTile {
  std::int32_t first_row, rows, slot, first_position;
};

// One layer's tensors: out and q (R, C), keys and values (slots, T_max, C), and the tiles.
template <class T, class KV>
struct PromptTensors {
  T* out;
  const T* q;
  const KV* keys;
  const KV* values;
  const float* key_scales;  // (slots, T_max, NH); null unless KV is int8
  const float* value_scales;
  const PromptTile* tiles;
  std::int64_t T_max, C;
  int HS;
  float scale_log2;  // log2(e) / sqrt(HS)
};

// Makes the zeros of sums positive. A tile of keys that a query does not see adds 0 * v to its
// sums, which can turn -0 into 0, and not every block reads such a tile.
template <class Block>
__device__ __forceinline__ void make_zeros_positive(Block& sums) {
  for (int r = 0; r < sums.R; ++r) {
    for (int g = 0; g < sums.G; ++g) sums.v[r][g] += 0.0f;
  }
}

// The queries of a tile and the head that one block processes. Grid (tiles * parts, NH). The last
// tiles of a prompt, which have the most keys, come first, so that no thread is left with one.
struct PromptPart {
  PromptTile tile;
  int rows, q0, num_keys;             // q0: the position of the first query
  std::int64_t T_max, offset, cache;  // where the part begins in out and q, and its keys in a cache

  // The block's part, if parts have `queries` rows; rows <= 0 if it is empty.
  template <class T, class KV>
  __device__ PromptPart(const PromptTensors<T, KV>& tensors, int queries) : T_max(tensors.T_max) {
    const std::int64_t part = grid_x() - 1 - block_x();
    const int parts = kPromptTileRows / queries;
    const int first = static_cast<int>(part % parts) * queries;
    tile = tensors.tiles[part / parts];
    const std::int64_t head = block_y() * tensors.HS;
    rows = tile.rows - first < queries ? tile.rows - first : queries;
    q0 = tile.first_position + first;
    num_keys = q0 + rows;
    offset = (tile.first_row + first) * tensors.C + head;
    cache = tile.slot * T_max * tensors.C + head;
  }

  // The scales of rows k0 .. of a cache in KV.
  template <class KV>
  __device__ auto scaling(const float* scales, int k0) const {
    if constexpr (kIsQuantized<KV>) {
      return ScaledRows{scales + (tile.slot * T_max + k0) * grid_y() + block_y(), grid_y()};
    } else {
      return UnscaledRows();
    }
  }
};

}  // namespace llmc
