// Building blocks of the fp32 attention kernels, which use fused multiply-adds: padded tiles in
// shared memory, and the small block of a product that one thread keeps in registers.
//
// The 128 threads of a block form a grid over the product, with four columns per thread and at most
// 16 threads across: neighbouring threads read neighbouring 16 bytes. A step of a product is R rows
// x 4 columns of multiply-adds on R + 4 numbers from shared memory. The columns of the right-hand
// side are always adjacent, so that four of them are one vector register on the host.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/vec_math.h"
#include "llmc/ops/attention/attention_layout.h"

namespace llmc {

inline constexpr int kFmaThreads = 128;

// kRows x kColumns floats in shared memory. Rows are padded by 4 floats, so that neighbouring rows
// start on other banks and still at a multiple of 16 bytes.
template <int kRows_, int kColumns_>
struct PaddedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kStride = kColumns + 4;
  static constexpr int kElements = kRows * kStride;

  float* data;

  __device__ __forceinline__ float* row(int r) const { return data + r * kStride; }
};

// Fills a tile from global memory. Rows are `row_stride` elements apart; elements beyond valid_rows
// or valid_columns become zero.
template <class Tile>
__device__ __forceinline__ void load_tile(const Tile& tile, const float* rows,
                                          std::int64_t row_stride, int valid_rows,
                                          int valid_columns) {
  constexpr int kVecs = Tile::kColumns / 4;
  for (int i = thread_index(); i < Tile::kRows * kVecs; i += kFmaThreads) {
    const int row = i / kVecs;
    const int column = i % kVecs * 4;
    Vec<float, 4> v = {};
    if (row < valid_rows && column < valid_columns) {
      v = load_vec<4>(rows + row * row_stride + column);
    }
    store_vec(tile.row(row) + column, v);
  }
}

// The same, transposed: column j of the tile is row j of global memory. Neighbouring threads
// process neighbouring columns, so that the scattered stores use different banks.
template <class Tile>
__device__ __forceinline__ void load_tile_transposed(const Tile& tile, const float* rows,
                                                     std::int64_t row_stride, int valid_rows,
                                                     int valid_columns) {
  for (int i = thread_index(); i < Tile::kColumns * Tile::kRows / 4; i += kFmaThreads) {
    const int row = i % Tile::kColumns;
    const int column = i / Tile::kColumns * 4;
    Vec<float, 4> v = {};
    if (row < valid_rows && column < valid_columns) {
      v = load_vec<4>(rows + row * row_stride + column);
    }
    for (int j = 0; j < 4; ++j) tile.row(column + j)[row] = v[j];
  }
}

// A thread's part of a kRows x kColumns product: R consecutive rows, and four columns in each of G
// groups that are 64 columns apart.
template <int kRows, int kColumns>
struct FmaBlock {
  static constexpr int kThreadColumns = kColumns / 4 < 16 ? kColumns / 4 : 16;
  static constexpr int kThreadRows = kFmaThreads / kThreadColumns;
  static constexpr int R = kRows / kThreadRows;
  static constexpr int G = kColumns / (4 * kThreadColumns);
  static_assert(R * kThreadRows == kRows && 4 * kThreadColumns * G == kColumns);

  Vec<float, 4> v[R][G];

  __device__ static int row(int r) { return thread_index() / kThreadColumns * R + r; }
  __device__ static int column(int g) {
    return thread_index() % kThreadColumns * 4 + 4 * kThreadColumns * g;
  }
};

// c += a * b summed over k = 0 .. depth - 1 (a multiple of 4), a[row][k] and b[k][column]. The
// local copy tells the compiler that the sums do not alias a or b.
template <int kRows, int kColumns, class A, class B>
__device__ __forceinline__ void multiply_add(FmaBlock<kRows, kColumns>& c, const A& a, const B& b,
                                             int depth) {
  using Block = FmaBlock<kRows, kColumns>;
  Block sums = c;
  const float* a_rows = a.row(Block::row(0));
  const float* b_columns = b.data + Block::column(0);
  for (int k = 0; k < depth; k += 4) {
    Vec<float, 4> left[Block::R];
    for (int r = 0; r < Block::R; ++r) left[r] = load_vec<4>(a_rows + r * A::kStride + k);
    for (int i = 0; i < 4; ++i) {
      for (int g = 0; g < Block::G; ++g) {
        const Vec<float, 4> right = load_vec<4>(b_columns + (k + i) * B::kStride + 64 * g);
        for (int r = 0; r < Block::R; ++r) add_product(sums.v[r][g], left[r][i], right);
      }
    }
  }
  c = sums;
}

// The same with a stored transposed: a[k][row].
template <int kRows, int kColumns, class A, class B>
__device__ __forceinline__ void multiply_add_transposed(FmaBlock<kRows, kColumns>& c, const A& a,
                                                        const B& b, int depth) {
  using Block = FmaBlock<kRows, kColumns>;
  static_assert(Block::R % 4 == 0);
  Block sums = c;
  const float* a_columns = a.data + Block::row(0);
  const float* b_columns = b.data + Block::column(0);
  for (int k = 0; k < depth; ++k) {
    Vec<float, 4> left[Block::R / 4];
    for (int r = 0; r < Block::R; r += 4) left[r / 4] = load_vec<4>(a_columns + k * A::kStride + r);
    for (int g = 0; g < Block::G; ++g) {
      const Vec<float, 4> right = load_vec<4>(b_columns + k * B::kStride + 64 * g);
      for (int r = 0; r < Block::R; ++r) add_product(sums.v[r][g], left[r / 4][r % 4], right);
    }
  }
  c = sums;
}

// Writes a thread's part, times `factor`, to global memory.
template <int kRows, int kColumns>
__device__ __forceinline__ void store_block(float* rows, std::int64_t row_stride, int valid_rows,
                                            int valid_columns, const FmaBlock<kRows, kColumns>& c,
                                            float factor) {
  for (int r = 0; r < c.R; ++r) {
    for (int g = 0; g < c.G; ++g) {
      if (c.row(r) >= valid_rows || c.column(g) >= valid_columns) continue;
      Vec<float, 4> product;
      for (int j = 0; j < 4; ++j) product[j] = c.v[r][g][j] * factor;
      store_vec(rows + c.row(r) * row_stride + c.column(g), product);
    }
  }
}

// Writes a thread's part to a shared tile.
template <int kRows, int kColumns, class Tile>
__device__ __forceinline__ void store_block(const Tile& tile, const FmaBlock<kRows, kColumns>& c) {
  for (int r = 0; r < c.R; ++r) {
    for (int g = 0; g < c.G; ++g) store_vec(tile.row(c.row(r)) + c.column(g), c.v[r][g]);
  }
}

}  // namespace llmc
