// Infinities and NaNs in tiles of values that not all queries of a block see: a weight of 0 must
// not make NaN of them.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/attention/one_thread_tiles.h"

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

// Replaces infinities and NaNs of a tile of values from k0 on if the queries of `sums`, which begin
// at q0, do not all see them.
template <class Block, class Tile>
__device__ __forceinline__ void keep_finite(Block& sums, const Tile& values, int q0, int k0) {
  const int first_hidden = q0 + 1 > k0 ? q0 + 1 - k0 : 0;
  if (first_hidden < Tile::kRows && block_any(has_infinite_part(values, first_hidden))) {
    replace_infinite_values(sums, values, q0 - k0, first_hidden);
  }
}

// Whether row `row` of the source has an infinity or NaN.
template <class Source>
__device__ __forceinline__ bool has_infinite_number(const Source& source, int row) {
  Floats<8> zeros;  // 0 * x is NaN if x is not finite
  for (int c = 0; c < source.valid_columns; c += 8)
    zeros += 0.0f * source.scaling(load_floats<8>(source.row(row) + c), row);
  return !(sum_of(zeros) == 0.0f);
}

// keep_finite for steps of values in words (one_thread_tiles.h), which come from `source`.
template <class E, class Sums, class Tile, class Source>
__device__ LLMC_INLINE_ON_GPU void keep_finite_words(Sums& sums, const Tile& values,
                                                     const Source& source, int q0, int k0) {
  constexpr int P = kWordNumbers<E>;
  const int first_hidden = q0 + 1 > k0 ? q0 + 1 - k0 : 0;
  for (int key = first_hidden; key < Tile::kRows * P && key < source.valid_rows; ++key) {
    if (!has_infinite_number(source, key)) continue;
    for (int c = 0; c < source.valid_columns; c += 8) {
      const Floats<8> x = source.scaling(load_floats<8>(source.row(key) + c), key);
      for (int i = 0; i < 8; ++i) {
        if (0.0f * x[i] == 0.0f) continue;
        const Word mask = P == 1 ? 0u : key % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
        values.row(key / P)[c + i] &= mask;
        for (int r = 0; r < sums.R; ++r) {
          const int column = (c + i) % kFmaWidth;
          if (key > q0 - k0 + r) continue;
          sums.v[r][(c + i) / kFmaWidth] +=
              keep_range(Floats<kFmaWidth>(0.0f * x[i]), column, column, 0.0f);
        }
      }
    }
  }
}

}  // namespace llmc
