// The tile vocabulary of the fp32 attention kernels, which multiply with fused multiply-adds:
// padded tiles in shared memory, and the small block of a product that one thread keeps in
// registers.
//
// 128 threads stand in 16 rows of 8. Of a product with 16R rows and 32G columns, thread (y, x) owns
// the rows y*R .. y*R + R - 1 and, in each of G groups of 32 columns, the four from 4x:
// neighbouring threads read neighbouring 16 bytes. Each step of a product is R x 4G multiply-adds
// on R + 4G numbers from shared memory; the right-hand side always has its columns side by side, so
// that the same loop runs in vector registers on the host.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention_layout.h"

namespace llmc {

inline constexpr int kFmaThreads = 128;
inline constexpr int kFmaThreadRows = 16;

__device__ __forceinline__ int fma_thread_row() {
  return thread_index() / 8;
}
__device__ __forceinline__ int fma_thread_column() {
  return thread_index() % 8 * 4;
}

// kRows x kColumns floats in shared memory. Rows are 4 floats longer than what they hold, so that
// neighbouring rows start on other banks and still at a multiple of 16 bytes.
template <int kRows_, int kColumns_>
struct PaddedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kStride = kColumns + 4;
  static constexpr int kElements = kRows * kStride;

  float* data;

  __device__ __forceinline__ float* row(int r) const { return data + r * kStride; }
};

// Fills a tile from global memory: rows are `row_stride` apart, zeros beyond valid_rows and
// valid_columns.
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

// The same, transposed: column j of the tile is row j of global memory. Neighbouring threads take
// neighbouring columns, which keeps the scattered stores off each other's banks.
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

// A thread's part of a product.
template <int R, int G>
struct FmaBlock {
  Vec<float, 4> v[R][G];
};

// c += a * b summed over k = 0 .. depth - 1 (a multiple of 4), a[row][k] and b[k][column].
template <int R, int G, class A, class B>
__device__ __forceinline__ void multiply_add(FmaBlock<R, G>& c, const A& a, const B& b, int depth) {
  const float* a_rows = a.row(fma_thread_row() * R);
  const float* b_columns = b.data + fma_thread_column();
  for (int k = 0; k < depth; k += 4) {
    Vec<float, 4> left[R];
    for (int r = 0; r < R; ++r) left[r] = load_vec<4>(a_rows + r * A::kStride + k);
    for (int i = 0; i < 4; ++i) {
      for (int g = 0; g < G; ++g) {
        const Vec<float, 4> right = load_vec<4>(b_columns + (k + i) * B::kStride + 32 * g);
        for (int r = 0; r < R; ++r) {
          for (int j = 0; j < 4; ++j) c.v[r][g][j] += left[r][i] * right[j];
        }
      }
    }
  }
}

// The same with a transposed in memory: a[k][row].
template <int R, int G, class A, class B>
__device__ __forceinline__ void multiply_add_transposed(FmaBlock<R, G>& c, const A& a, const B& b,
                                                        int depth) {
  const float* a_columns = a.data + fma_thread_row() * R;
  const float* b_columns = b.data + fma_thread_column();
  for (int k = 0; k < depth; ++k) {
    const Vec<float, R> left = load_vec<R>(a_columns + k * A::kStride);
    for (int g = 0; g < G; ++g) {
      const Vec<float, 4> right = load_vec<4>(b_columns + k * B::kStride + 32 * g);
      for (int r = 0; r < R; ++r) {
        for (int j = 0; j < 4; ++j) c.v[r][g][j] += left[r] * right[j];
      }
    }
  }
}

// Writes a thread's part, times `factor`, to global memory.
template <int R, int G>
__device__ __forceinline__ void store_block(float* rows, std::int64_t row_stride, int valid_rows,
                                            int valid_columns, const FmaBlock<R, G>& c,
                                            float factor) {
  for (int r = 0; r < R; ++r) {
    const int row = fma_thread_row() * R + r;
    for (int g = 0; g < G; ++g) {
      const int column = fma_thread_column() + 32 * g;
      if (row >= valid_rows || column >= valid_columns) continue;
      Vec<float, 4> scaled;
      for (int j = 0; j < 4; ++j) scaled[j] = c.v[r][g][j] * factor;
      store_vec(rows + row * row_stride + column, scaled);
    }
  }
}

}  // namespace llmc
