// The products of prompt rows on a GPU: blocks compute tiles of rows and columns, and the stages of
// both factors pass through a ring in shared memory. Every sum adds its terms in ascending order of
// k (in half precision, 16 at a time), whatever the tile.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/gemm/invariant_gemm_heads.h"
#include "llmc/ops/gemm/invariant_gemm_parts.h"
#include "llmc/ops/gemm/invariant_gemm_prompt_tile.h"

namespace llmc {

namespace row_kernels {

inline constexpr int kPromptStages = 4;

// The part of a product that a block computes, and its stages in shared memory.
template <class Tile, class T>
struct PromptStages {
  using RowTile = typename Tile::RowTile;
  using WeightTile = typename Tile::WeightTile;
  static constexpr int kThreads = Tile::kThreads;
  T* row_memory;
  T* weight_memory;
  const T* inp;     // the block's first row
  const T* weight;  // the block's first column
  std::int64_t N, K;
  int valid_rows, valid_columns;

  __device__ __forceinline__ int count() const {
    return static_cast<int>(ceil_div(K, Tile::kDepth));
  }
  __device__ __forceinline__ RowTile rows(int s) const {
    return {row_memory + s % kPromptStages * RowTile::kElements};
  }
  __device__ __forceinline__ WeightTile weights(int s) const {
    return {weight_memory + s % kPromptStages * WeightTile::kElements};
  }
  // Terms from the first one of stage s to the last of the product.
  __device__ __forceinline__ int terms(int s) const {
    return static_cast<int>(K) - s * Tile::kDepth;
  }
  __device__ __forceinline__ void copy_rows(int s) const {
    if (s >= count()) return;
    copy_tile<kThreads>(rows(s), inp + s * Tile::kDepth, K, valid_rows, terms(s));
  }
  __device__ __forceinline__ void copy_weights(int s) const {
    if (s >= count()) return;
    const std::int64_t k = s * Tile::kDepth;
    if constexpr (Tile::kLogits) {
      copy_tile<kThreads>(weights(s), weight + k, K, valid_columns, terms(s));
    } else {
      copy_tile<kThreads>(weights(s), weight + k * N, N, terms(s), valid_columns);
    }
  }
  // Normalises the rows of stage s in place. Each thread does so with what it copied itself, so it
  // needs no barrier before.
  __device__ __forceinline__ void normalise_rows(int s, const RowStatistics* statistics,
                                                 const T* norm_weight, const T* norm_bias) const {
    constexpr int V = kVecSize<T>;
    if (s >= count()) return;
    const RowTile tile = rows(s);
    for_own_pieces<RowTile, kThreads>([&](int row, int piece) {
      if (row >= valid_rows || piece * V >= terms(s)) return;
      const int k = s * Tile::kDepth + piece * V;
      T* const place = tile.chunk(row, piece);
      store_vec(place,
                normalise(load_vec<V>(place), statistics[row], norm_weight + k, norm_bias + k));
    });
  }
};

template <class Tile, class T>
constexpr std::size_t kPromptSharedBytes =
    SharedLayout()
        .add<T>(kPromptStages* Tile::RowTile::kElements)
        .template add<T>(kPromptStages* Tile::WeightTile::kElements)
        .template add<RowStatistics>(Tile::kRows)
        .bytes();

// Statistics of a block's rows, by all its warps.
template <int kWarps, class T>
__device__ __forceinline__ void tile_statistics(RowStatistics* statistics, const T* x, int rows,
                                                std::int64_t K, float epsilon) {
  constexpr int kTogether = 2;
  for (int r = warp_index() * kTogether; r < rows; r += kWarps * kTogether)
    row_statistics<kTogether, 3>(statistics + r, x + r * K, rows - r, K, epsilon);
}

}  // namespace row_kernels

// Grid (tiles of columns, tiles of rows).
template <class Tile, class T, class TO, class KV>
__global__ __launch_bounds__(Tile::kThreads, Tile::kMinBlocks) void prompt_product_kernel(
    InvariantGemmCall<T, TO, KV> call) {
  using namespace row_kernels;
  constexpr int S = kPromptStages;
  SharedMemory shared;
  T* const row_memory = shared.take<T>(S * Tile::RowTile::kElements);
  T* const weight_memory = shared.take<T>(S * Tile::WeightTile::kElements);
  RowStatistics* const statistics = shared.take<RowStatistics>(Tile::kRows);
  const std::int64_t row = block_y() * Tile::kRows, column = block_x() * Tile::kColumns;
  const auto size = [](std::int64_t left, int most) {
    return static_cast<int>(left < most ? left : most);
  };
  const PromptStages<Tile, T> stages{row_memory,
                                     weight_memory,
                                     call.inp + row * call.K,
                                     call.weight + (Tile::kLogits ? column * call.K : column),
                                     call.N,
                                     call.K,
                                     size(call.M - row, Tile::kRows),
                                     size(call.N - column, Tile::kColumns)};
  for (int s = 0; s < S - 1; ++s) stages.copy_weights(s);
  allow_next_launch();
  wait_for_previous_launch();

  const auto normalise_rows = [&](int s) {
    if (call.norm_weight != nullptr)
      stages.normalise_rows(s, statistics, call.norm_weight, call.norm_bias);
  };
  for (int s = 0; s < S - 1; ++s) {
    stages.copy_rows(s);
    copy_async_commit();
  }
  if (call.norm_weight != nullptr) {
    tile_statistics<Tile::kThreads / 32>(statistics, stages.inp, stages.valid_rows, call.K,
                                         call.norm_epsilon);
    block_barrier();
  }
  copy_async_wait<S - 2>();
  normalise_rows(0);
  block_barrier();
  Tile tile;
  for (int s = 0; s < stages.count(); ++s) {
    stages.copy_weights(s + S - 1);
    stages.copy_rows(s + S - 1);
    copy_async_commit();
    copy_async_wait<S - 2>();
    normalise_rows(s + 1);
    tile.multiply(stages.rows(s), stages.weights(s), stages.valid_rows, stages.valid_columns);
    block_barrier();
  }
  tile.for_each([&]<int V>(int r, int c, const Floats<V>& sums) {
    if (r >= stages.valid_rows || c >= stages.valid_columns) return;
    if constexpr (Tile::kLogits) {
      finish_logits<V>(call, row + r, column + c, sums);
    } else {
      finish_sums<V>(call, row + r, column + c, sums + column_bias<V>(call, column + c),
                     epilogue_inputs<V>(call, row + r, column + c));
    }
  });
  if constexpr (kIsQuantized<KV>) {
    block_barrier();  // the block's sums are written
    finish_heads(call, block_y(), row, stages.valid_rows, static_cast<int>(column), Tile::kColumns);
  }
}

namespace row_kernels {

template <class Tile, class T, class TO, class KV>
void launch_prompt_tile(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  static_assert(kPromptSharedBytes<Tile, T> <= kMaxSharedBytes);
  launch_overlapped(prompt_product_kernel<Tile, T, TO, KV>,
                    Grid{ceil_div(call.N, Tile::kColumns), ceil_div(call.M, Tile::kRows), 1},
                    Tile::kThreads, kPromptSharedBytes<Tile, T>, stream, call);
}

// Products with at least this many columns have wide tiles, which read half as much from the L2
// cache. 512 rows of the 124M model have 72 (qkv) and 96 (MLP) of them; its products with 768
// columns have 96 small ones.
inline constexpr std::int64_t kMinWideColumns = 2048;

template <bool kLogits, class T, class TO, class KV>
void launch_prompt(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  if constexpr (sizeof(T) == 2 && !kLogits) {
    if (call.N >= kMinWideColumns)
      return launch_prompt_tile<PromptTile<T, 128, 128, kLogits>>(call, stream);
  }
  launch_prompt_tile<PromptTile<T, 64, 64, kLogits>>(call, stream);
}

}  // namespace row_kernels

}  // namespace llmc
