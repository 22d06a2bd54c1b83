// Building blocks of the tensor-core attention kernels: tiles in shared memory, operands and
// accumulators of mma m16n8k16 in registers, and the two matrix products of attention.
//
// The instruction fixes a lane's part of an operand or accumulator (device/README.md). Below, a
// lane holds rows g and g + 8 of a 16-row tile, with g = lane / 4, and the column pair
// (2t, 2t + 1), with t = lane % 4. The design is based on two facts:
//  - the accumulators of two neighbouring 16x8 tiles, once rounded, are the A operand of a 16x16
//    tile: a product feeds the next one from registers (`as_operand`);
//  - ldmatrix loads the B operand of both tile^T (rows as columns) and tile (it transposes during
//    the load), so one copy of K and Q serves both roles.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"

namespace llmc {

// A thread's position in its warp and in an mma tile. The arithmetic is unsigned: signed division
// rounds towards zero, which costs the kernels up to 30 registers.
__device__ __forceinline__ int lane_part(unsigned divisor, unsigned modulus) {
  return static_cast<int>(static_cast<unsigned>(thread_index()) / divisor % modulus);
}
__device__ __forceinline__ int tile_row() {
  return lane_part(4, 8);
}  // g
__device__ __forceinline__ int tile_column() {
  return 2 * lane_part(1, 4);
}  // 2t
__device__ __forceinline__ int warp_in_block() {
  return lane_part(32, 32);
}

// kRows x kColumns half-precision numbers in shared memory, in chunks of 8 (16 bytes). ldmatrix
// reads the same chunk of 8 neighbouring rows at once. Rows that are a multiple of 128 bytes apart
// would use the same banks, so a chunk's place is its number xor the row's. Two rows of 64 bytes
// (4 chunks) share a 128-byte line; tiles with such rows use the number of the row pair.
template <class Element, int kRows_, int kColumns_>
struct SharedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kChunks = kColumns / 8;
  static constexpr int kElements = kRows * kColumns;
  static_assert(kChunks >= 4 && kColumns % 32 == 0 && sizeof(Element) == 2);

  Element* data;

  __device__ __forceinline__ Element* chunk(int row, int c) const {
    const int swizzle = kChunks >= 8 ? row & 7 : (row >> 1) & 3;
    return data + row * kColumns + (c ^ swizzle) * 8;
  }
};

// Starts the copy of a tile by all kThreads threads of the block. `rows` points to the first row in
// global memory; rows are `row_stride` elements apart. Elements beyond valid_rows (>= 1) or
// valid_columns become zero and are not read.
template <int kThreads, class Tile, class Element>
__device__ __forceinline__ void load_tile_async(const Tile& tile, const Element* rows,
                                                std::int64_t row_stride, int valid_rows,
                                                int valid_columns) {
  for (int i = thread_index(); i < Tile::kRows * Tile::kChunks; i += kThreads) {
    const int row = i / Tile::kChunks;
    const int c = i % Tile::kChunks;
    const bool valid = row < valid_rows && c * 8 < valid_columns;
    const Element* source = valid ? rows + row * row_stride + c * 8 : rows;
    copy_async_16(tile.chunk(row, c), source, valid);
  }
}

struct OperandA {  // 16 x 16
  std::uint32_t r[4];
};
struct OperandB {  // 16 x 8
  std::uint32_t r[2];
};
struct Accumulator {  // 16 x 8, fp32: v[0], v[1] in row g, v[2], v[3] in row g + 8
  float v[4];
};

// Loads rows row .. row + 15, columns column .. column + 15 of the tile as an A operand.
template <class Tile>
__device__ __forceinline__ OperandA load_operand_a(const Tile& tile, int row, int column) {
  const int matrix = lane_part(8, 4);  // order of the four 8x8 parts: down first, then right
  OperandA a;
  ldmatrix_x4(a.r, tile.chunk(row + (matrix & 1) * 8 + lane_part(1, 8), column / 8 + matrix / 2));
  return a;
}

// Loads two adjacent B operands: B[k][n] = tile[row + n][column + k], n in 0..15, k in 0..15.
template <class Tile>
__device__ __forceinline__ void load_rows_as_b(OperandB (&b)[2], const Tile& tile, int row,
                                               int column) {
  const int matrix = lane_part(8, 4);
  std::uint32_t r[4];
  ldmatrix_x4(r, tile.chunk(row + (matrix / 2) * 8 + lane_part(1, 8), column / 8 + (matrix & 1)));
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}

// Loads two adjacent B operands: B[k][n] = tile[row + k][column + n], k in 0..15, n in 0..15.
template <class Tile>
__device__ __forceinline__ void load_columns_as_b(OperandB (&b)[2], const Tile& tile, int row,
                                                  int column) {
  const int matrix = lane_part(8, 4);
  std::uint32_t r[4];
  ldmatrix_x4_transposed(
      r, tile.chunk(row + (matrix & 1) * 8 + lane_part(1, 8), column / 8 + matrix / 2));
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}

// A product's A operand (m, k) in registers, loaded once.
template <int M, int K>
struct RegisterOperands {
  OperandA a[M][K];

  template <class Tile>
  __device__ __forceinline__ void load(const Tile& tile, int first_row) {
    for (int m = 0; m < M; ++m) {
      for (int k = 0; k < K; ++k) a[m][k] = load_operand_a(tile, first_row + 16 * m, 16 * k);
    }
  }
  __device__ __forceinline__ OperandA operator()(int m, int k) const { return a[m][k]; }
};

// A product's A operand (m, k) in shared memory, loaded again for each product.
template <class Tile>
struct SharedOperands {
  Tile tile;
  int first_row;
  __device__ __forceinline__ OperandA operator()(int m, int k) const {
    return load_operand_a(tile, first_row + 16 * m, 16 * k);
  }
};

// c += A * R^T; R is rows first_row .. first_row + 8N - 1 of the tile. These are scores of 16M rows
// against 8N rows, summed over the 16K columns.
template <class Element, int K, int M, int N, class A, class Tile>
__device__ __forceinline__ void multiply_by_rows(Accumulator (&c)[M][N], const A& a,
                                                 const Tile& tile, int first_row) {
  static_assert(N % 2 == 0);
  for (int k = 0; k < K; ++k) {
    OperandA rows[M];
    for (int m = 0; m < M; ++m) rows[m] = a(m, k);
    for (int n = 0; n < N; n += 2) {
      OperandB b[2];
      load_rows_as_b(b, tile, first_row + 8 * n, 16 * k);
      for (int m = 0; m < M; ++m) {
        mma_m16n8k16<Element>(c[m][n].v, rows[m].r, b[0].r);
        mma_m16n8k16<Element>(c[m][n + 1].v, rows[m].r, b[1].r);
      }
    }
  }
}

// c += A * R; R is rows first_row .. first_row + 16K - 1 of the tile. The result is weighted sums
// of rows, 8N columns wide.
template <class Element, int M, int N, int K, class Tile>
__device__ __forceinline__ void multiply_by_columns(Accumulator (&c)[M][N],
                                                    const OperandA (&a)[M][K], const Tile& tile,
                                                    int first_row) {
  static_assert(N % 2 == 0);
  for (int k = 0; k < K; ++k) {
    for (int n = 0; n < N; n += 2) {
      OperandB b[2];
      load_columns_as_b(b, tile, first_row + 16 * k, 8 * n);
      for (int m = 0; m < M; ++m) {
        mma_m16n8k16<Element>(c[m][n].v, a[m][k].r, b[0].r);
        mma_m16n8k16<Element>(c[m][n + 1].v, a[m][k].r, b[1].r);
      }
    }
  }
}

// Rounds two neighbouring accumulators to the A operand with the same 16 x 16 numbers.
template <class Element>
__device__ __forceinline__ OperandA as_operand(const Accumulator& left, const Accumulator& right) {
  return {{pack2<Element>(left.v[0], left.v[1]), pack2<Element>(left.v[2], left.v[3]),
           pack2<Element>(right.v[0], right.v[1]), pack2<Element>(right.v[2], right.v[3])}};
}

template <class Element, int M, int N>
__device__ __forceinline__ void as_operands(OperandA (&a)[M][N / 2], const Accumulator (&c)[M][N]) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; n += 2) a[m][n / 2] = as_operand<Element>(c[m][n], c[m][n + 1]);
  }
}

template <int M, int N>
__device__ __forceinline__ void multiply_elements(Accumulator (&c)[M][N], float factor) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      for (int i = 0; i < 4; ++i) c[m][n].v[i] *= factor;
    }
  }
}

// Sets scores of keys that the query does not see to -inf. first_query and first_key are those of
// the accumulators' first row and column.
template <int M, int N>
__device__ __forceinline__ void mask_scores(Accumulator (&s)[M][N], const Visibility& visibility,
                                            int first_query, int first_key) {
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < 2; ++r) {
      const int query = first_query + 16 * m + 8 * r + tile_row();
      const int min_key = visibility.first_key(query);
      for (int n = 0; n < N; ++n) {
        for (int i = 0; i < 2; ++i) {
          const int key = first_key + 8 * n + tile_column() + i;
          if (key > query || key < min_key) s[m][n].v[2 * r + i] = kMinusInfinity;
        }
      }
    }
  }
}

// Writes a warp's 16M rows, rounded, to global memory, `row_stride` elements apart. They pass
// through the rows first_row .. of a shared tile, which no other warp uses any more, so that every
// store is 16 bytes.
template <int M, int N, class Tile, class Element>
__device__ __forceinline__ void store_rows(Element* rows, std::int64_t row_stride, int valid_rows,
                                           int valid_columns, const Accumulator (&c)[M][N],
                                           const Tile& tile, int first_row) {
  static_assert(8 * N == Tile::kColumns);
  warp_barrier();
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      for (int half = 0; half < 2; ++half) {
        const Vec<Element, 2> pair = {{from_float<Element>(c[m][n].v[2 * half]),
                                       from_float<Element>(c[m][n].v[2 * half + 1])}};
        store_vec(tile.chunk(first_row + 16 * m + 8 * half + tile_row(), n) + tile_column(), pair);
      }
    }
  }
  warp_barrier();
  for (int i = lane_part(1, 32); i < 16 * M * Tile::kChunks; i += 32) {
    const int row = i / Tile::kChunks;
    const int column = i % Tile::kChunks * 8;
    if (row < valid_rows && column < valid_columns) {
      store_vec(rows + row * row_stride + column,
                load_vec<8>(tile.chunk(first_row + row, column / 8)));
    }
  }
}

}  // namespace llmc
