// Tiles of the products of prompt rows: their place in shared memory, and how a block multiplies
// them. Half precision uses tensor cores, fp32 fused multiply-adds.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/attention/attention_tiles.h"
#include "llmc/ops/gemm/invariant_gemm_parts.h"

namespace llmc::row_kernels {

// kRows rows of kPieces pieces of 16 bytes in shared memory. A piece's place is its number xor the
// row's, as in SharedTile: pieces with one number of 8 neighbouring rows use all banks.
template <class T, int kRows_, int kPieces_>
struct StageTile {
  static constexpr int kRows = kRows_;
  static constexpr int kPieces = kPieces_;
  static constexpr int kElements = kRows * kPieces * kVecSize<T>;
  static_assert(kPieces == 4 || kPieces % 8 == 0);
  T* data;

  __device__ __forceinline__ T* chunk(int row, int piece) const {
    const int swizzle = kPieces >= 8 ? row & 7 : (row >> 1) & 3;
    return data + (row * kPieces + (piece ^ swizzle)) * kVecSize<T>;
  }
};

// Calls f(row, piece) for the pieces of a tile that the calling thread copies.
template <class Tile, int kThreads, class F>
__device__ __forceinline__ void for_own_pieces(const F& f) {
  static_assert(Tile::kRows * Tile::kPieces % kThreads == 0);
  for (int i = 0; i < Tile::kRows * Tile::kPieces / kThreads; ++i) {
    const auto piece = static_cast<unsigned>(thread_index() + i * kThreads);
    f(static_cast<int>(piece / Tile::kPieces), static_cast<int>(piece % Tile::kPieces));
  }
}

// Starts the copy of a tile from rows that are `stride` elements apart. Elements beyond valid_rows
// or valid_columns become zero.
template <int kThreads, class Tile, class T>
__device__ __forceinline__ void copy_tile(const Tile& tile, const T* source, std::int64_t stride,
                                          int valid_rows, int valid_columns) {
  for_own_pieces<Tile, kThreads>([&](int row, int piece) {
    const int column = piece * kVecSize<T>;
    const bool valid = row < valid_rows && column < valid_columns;
    copy_async_16(tile.chunk(row, piece), valid ? source + row * stride + column : source, valid);
  });
}

// Half precision: two rows of warps, and a column of warps per 32 columns. A warp computes kRows /
// 2 rows and 32 columns.
template <class T, int kRows_, int kColumns_, bool kLogits_>
struct PromptTile {
  static constexpr bool kLogits = kLogits_;
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kThreads = 2 * kColumns;
  static constexpr int kDepth = kRows <= 64 ? 64 : 32;  // terms of a stage
  static constexpr int kMinBlocks = kRows <= 64 ? 3 : 2;
  using RowTile = StageTile<T, kRows, kDepth / 8>;
  using WeightTile = std::conditional_t<kLogits, StageTile<T, kColumns, kDepth / 8>,
                                        StageTile<T, kDepth, kColumns / 8>>;
  static constexpr int M = kRows / 32, N = 4;  // operands of a warp
  Accumulator sums[M][N] = {};

  static __device__ __forceinline__ int first_row() { return lane_part(32, 2) * (kRows / 2); }
  static __device__ __forceinline__ int first_column() { return lane_part(64, kColumns / 32) * 32; }

  // Adds the terms of a stage. Warps without valid sums skip it.
  __device__ __forceinline__ void multiply(const RowTile& rows, const WeightTile& weights,
                                           int valid_rows, int valid_columns) {
    if (first_row() >= valid_rows || first_column() >= valid_columns) return;
    for (int k = 0; k < kDepth; k += 16) {
      OperandA a[M];
      for (int m = 0; m < M; ++m) a[m] = load_operand_a(rows, first_row() + 16 * m, k);
      for (int n = 0; n < N; n += 2) {
        OperandB b[2];
        if constexpr (kLogits) {
          load_rows_as_b(b, weights, first_column() + 8 * n, k);
        } else {
          load_columns_as_b(b, weights, k, first_column() + 8 * n);
        }
        for (int m = 0; m < M; ++m) {
          mma_m16n8k16<T>(sums[m][n].v, a[m].r, b[0].r);
          mma_m16n8k16<T>(sums[m][n + 1].v, a[m].r, b[1].r);
        }
      }
    }
  }

  // Calls f(row, column, sums of four neighbouring columns) for all sums of the calling thread. Of
  // two neighbouring lanes, one gets all four in row g, and the other those in row g + 8.
  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
    const bool odd = lane() % 2 != 0;
    const int row = first_row() + tile_row() + (odd ? 8 : 0);
    const int column = first_column() + tile_column() / 4 * 4;
    for_constants<M * N>([&]<int i>() {
      const float(&v)[4] = sums[i / N][i % N].v;
      const float other[2] = {shuffle_xor(odd ? v[0] : v[2], 1), shuffle_xor(odd ? v[1] : v[3], 1)};
      alignas(16) const float s[4] = {odd ? other[0] : v[0], odd ? other[1] : v[1],
                                      odd ? v[2] : other[0], odd ? v[3] : other[1]};
      f(row + i / N * 16, column + i % N * 8, load_floats<4>(s));
    });
  }
};

// fp32: thread 16y + x computes rows y + 8i and four columns: 4x + j, or x + 16j of the logits,
// whose weights are read along k.
template <bool kLogits_>
struct PromptTile<float, 64, 64, kLogits_> {
  static constexpr bool kLogits = kLogits_;
  static constexpr int kRows = 64, kColumns = 64;
  static constexpr int kThreads = 128;
  static constexpr int kDepth = 16;
  static constexpr int kMinBlocks = 4;
  using RowTile = StageTile<float, kRows, kDepth / 4>;
  using WeightTile = std::conditional_t<kLogits, StageTile<float, kColumns, kDepth / 4>,
                                        StageTile<float, kDepth, kColumns / 4>>;
  alignas(16) float sums[8][4] = {};

  static __device__ __forceinline__ int x() { return lane_part(1, 16); }
  static __device__ __forceinline__ int y() { return lane_part(16, 8); }

  __device__ __forceinline__ void multiply(const RowTile& rows, const WeightTile& weights, int,
                                           int) {
    for (int k = 0; k < kDepth; k += 4) {
      Vec<float, 4> w[4];
      for (int i = 0; i < 4; ++i)
        w[i] =
            load_vec<4>(kLogits ? weights.chunk(x() + 16 * i, k / 4) : weights.chunk(k + i, x()));
      for (int r = 0; r < 8; ++r) {
        const Vec<float, 4> a = load_vec<4>(rows.chunk(y() + 8 * r, k / 4));
        for (int term = 0; term < 4; ++term) {
          for (int j = 0; j < 4; ++j)
            sums[r][j] = std::fma(a[term], kLogits ? w[j][term] : w[term][j], sums[r][j]);
        }
      }
    }
  }

  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
    for_constants<8>([&]<int r>() {
      if constexpr (kLogits) {
        for_constants<4>([&]<int j>() { f(y() + 8 * r, x() + 16 * j, Floats<1>(sums[r][j])); });
      } else {
        f(y() + 8 * r, 4 * x(), load_floats<4>(sums[r]));
      }
    });
  }
};

}  // namespace llmc::row_kernels
