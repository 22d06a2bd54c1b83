// Shared by the kernels of prompt_attention.h: their unit of work and their tensors.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
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

}  // namespace llmc
