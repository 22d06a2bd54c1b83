// Attention of prompts by one thread per block (device/block_threads.h): the algorithm of
// prompt_attention_fma.h with scores stored transposed, (keys, queries). A SIMD register holds the
// scores of one key and neighbouring queries, so the running softmax needs no operation across a
// register, and keys stay as they lie in the cache.
//
// Queries are columns here. Those that see no key of a tile are skipped, in groups; others multiply
// keys that they do not see by weights of 0. Both give the same bits (make_zeros_positive).
#pragma once

#include <cfloat>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"
#include "llmc/ops/attention/prompt_attention_tile.h"
#include "llmc/ops/attention/prompt_attention_values.h"

namespace llmc {

// Tiles for heads of up to kHeadTile channels. The scores and a tile of keys or values stay in the
// L1 cache of a core.
template <int kHeadTile>
struct OneThreadTiling {
  static constexpr int kQueries = kHeadTile > 64 ? 32 : 64, kKeys = 32;
  static constexpr int W = kFmaWidth;
  // Half of the registers hold sums: `kPassGroups` vectors of kPassRows rows.
  static constexpr int kPassGroups = 2, kPassRows = kFloatRegisters / 2 / kPassGroups;
  static constexpr int kPassQueries = kPassGroups * W;

  using QueryTile = PaddedTile<kHeadTile, kQueries>;  // transposed
  using RowTile = PaddedTile<kKeys, kHeadTile>;       // of keys, and of values
  using ScoreTile = PaddedTile<kKeys, kQueries>;
  using Sums = FmaBlock<kQueries, kHeadTile>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<float>(QueryTile::kElements)
                                                  .template add<float>(RowTile::kElements)
                                                  .template add<float>(RowTile::kElements)
                                                  .template add<float>(ScoreTile::kElements)
                                                  .template add<float>(kQueries)
                                                  .template add<float>(kQueries)
                                                  .template add<float>(kQueries)
                                                  .bytes();
};

// The running softmax of the columns of a tile of scores.
template <class Tiling>
struct ColumnSoftmax {
  static constexpr int W = Tiling::W;
  float* max;
  float* sum;
  float* correction;  // the factor of the earlier sums

  __device__ explicit ColumnSoftmax(SharedMemory& shared)
      : max(shared.take<float>(Tiling::kQueries)),
        sum(shared.take<float>(Tiling::kQueries)),
        correction(shared.take<float>(Tiling::kQueries)) {
    for (int q = 0; q < Tiling::kQueries; ++q) {
      max[q] = kMinusInfinity;
      sum[q] = 0.0f;
    }
  }

  // Replaces the scores of W columns (in units of log2, -inf if masked) in rows 0 .. count - 1,
  // whose largest are in `tile_max`, by p. A column of scores that are all -inf has p = 0.
  __device__ __forceinline__ void step(float* scores, int column, int count,
                                       const Floats<W>& tile_max) {
    const Floats<W> old_max = load_floats<W>(max + column);
    const Floats<W> new_max = max_elements(old_max, tile_max);
    const Floats<W> offset = max_elements(Floats<W>(-FLT_MAX), new_max);
    const Floats<W> factor = accurate_exp2(old_max - offset);
    Floats<W> total = factor * load_floats<W>(sum + column);
    for (int k = 0; k < count; ++k) {
      float* const s = scores + k * Tiling::ScoreTile::kStride;
      const Floats<W> p = accurate_exp2(load_floats<W>(s) - offset);
      total += p;
      store_floats(s, p);
    }
    store_floats(max + column, new_max);
    store_floats(sum + column, total);
    store_floats(correction + column, factor);
  }
};

// p of keys k0 .. k0 + count - 1 and the queries of a pass, which begin at `column` and at position
// `query`.
template <class Tiling>
__device__ LLMC_INLINE_ON_GPU void score_pass(ColumnSoftmax<Tiling>& softmax,
                                              const typename Tiling::ScoreTile& scores,
                                              const typename Tiling::RowTile& keys,
                                              const typename Tiling::QueryTile& queries, int column,
                                              int query, int k0, int count, int HS) {
  constexpr int W = Tiling::W, kGroups = Tiling::kPassGroups, kRows = Tiling::kPassRows;
  Floats<W> largest[kGroups];
  for (int g = 0; g < kGroups; ++g) largest[g] = Floats<W>(kMinusInfinity);
  for (int k = 0; k < count; k += kRows) {
    Floats<W> sums[kRows][kGroups];
    const float* const key = keys.row(k);
    for (int d = 0; d < HS; ++d) {
      for (int g = 0; g < kGroups; ++g) {
        const auto right = load_floats<W>(queries.row(d) + column + g * W);
        for (int r = 0; r < kRows; ++r) sums[r][g] += key[r * keys.kStride + d] * right;
      }
    }
    const bool needs_mask = k0 + k + kRows - 1 > query;
    for (int r = 0; r < kRows; ++r) {
      for (int g = 0; g < kGroups; ++g) {
        Floats<W> s = sums[r][g];
        if (needs_mask) s = keep_range(s, k0 + k + r - query - g * W, W - 1, kMinusInfinity);
        largest[g] = max_elements(largest[g], s);
        store_floats(scores.row(k + r) + column + g * W, s);
      }
    }
  }
  for (int g = 0; g < kGroups; ++g)
    softmax.step(scores.row(0) + column + g * W, column + g * W, count, largest[g]);
}

// o = factor * o + pᵀ v for the rows of o from `first` on, over `count` keys.
template <class Tiling>
__device__ LLMC_INLINE_ON_GPU void add_values(typename Tiling::Sums& o, const float* factor,
                                              const typename Tiling::ScoreTile& scores,
                                              const typename Tiling::RowTile& values, int first,
                                              int end, int count, int HS) {
  using Sums = typename Tiling::Sums;
  constexpr int W = Tiling::W, kGroups = Sums::kPassGroups, kRows = Sums::kPassRows;
  for (int g0 = 0; g0 * W < HS; g0 += kGroups) {
    for (int r0 = first; r0 < end; r0 += kRows) {
      Floats<W> sums[kRows][kGroups];
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kGroups; ++g) sums[r][g] = factor[r0 + r] * o.v[r0 + r][g0 + g];
      }
      for (int k = 0; k < count; ++k) {
        const float* const p = scores.row(k) + r0;
        for (int g = 0; g < kGroups; ++g) {
          const auto right = load_floats<W>(values.row(k) + (g0 + g) * W);
          for (int r = 0; r < kRows; ++r) sums[r][g] += p[r] * right;
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kGroups; ++g) o.v[r0 + r][g0 + g] = sums[r][g];
      }
    }
  }
}

// Attends the queries of a block. With several threads per block this does not compile.
template <int kHeadTile, class T, class KV>
__device__ void attend_in_one_thread(const PromptTensors<T, KV>& tensors, const PromptPart& part) {
  using Tiling = OneThreadTiling<kHeadTile>;
  constexpr int kKeys = Tiling::kKeys;
  SharedMemory shared;
  const typename Tiling::QueryTile queries{shared.take<float>(Tiling::QueryTile::kElements)};
  const typename Tiling::RowTile keys{shared.take<float>(Tiling::RowTile::kElements)};
  const typename Tiling::RowTile values{shared.take<float>(Tiling::RowTile::kElements)};
  const typename Tiling::ScoreTile scores{shared.take<float>(Tiling::ScoreTile::kElements)};
  ColumnSoftmax<Tiling> softmax(shared);
  const std::int64_t C = tensors.C;
  const int HS = tensors.HS;
  load_tile_transposed(queries, tensors.q + part.offset, C, part.rows, HS,
                       SameScale{tensors.scale_log2});
  typename Tiling::Sums o;
  for (int k0 = 0; k0 < part.num_keys; k0 += kKeys) {
    load_tile(keys, tensors.keys + part.cache + k0 * C, C, part.num_keys - k0, HS,
              part.template scaling<KV>(tensors.key_scales, k0));
    load_tile(values, tensors.values + part.cache + k0 * C, C, part.num_keys - k0, HS,
              part.template scaling<KV>(tensors.value_scales, k0));
    keep_finite(o, values, part.q0, k0);
    for (int column = 0; column < part.rows; column += Tiling::kPassQueries) {
      const int visible = part.q0 + column + Tiling::kPassQueries - k0;
      if (visible <= 0) continue;
      const int count = visible < kKeys ? round_up(visible, Tiling::kPassRows) : kKeys;
      score_pass<Tiling>(softmax, scores, keys, queries, column, part.q0 + column, k0, count, HS);
      add_values<Tiling>(o, softmax.correction, scores, values, column,
                         column + Tiling::kPassQueries, count, HS);
    }
  }
  for (int q = 0; q < Tiling::kQueries; ++q) softmax.correction[q] = 1.0f / softmax.sum[q];
  multiply_rows(o, softmax.correction);
  make_zeros_positive(o);
  store_block(tensors.out + part.offset, C, part.rows, HS, o, 1.0f);
}

}  // namespace llmc
