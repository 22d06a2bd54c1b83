// Building blocks of the attention kernels that use fused multiply-adds in fp32: padded tiles in
// shared memory, and the part of a product that one thread sums up.
//
// On a GPU, the 128 threads of a block form a grid over the product, with four columns per thread
// and at most 16 threads across: neighbouring threads read neighbouring 16 bytes. A thread keeps
// its part in registers. A step of a product is R rows x 4 columns of multiply-adds on R + 4
// numbers from shared memory.
//
// With one thread per block (device/block_threads.h), its part is the whole product. It sums up as
// many rows and columns at a time as there are registers for, and a vector of adjacent columns is
// one SIMD register.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/attention/attention_layout.h"

namespace llmc {

inline constexpr int kFmaThreads = cooperating_threads(128);
// Neighbouring lanes that share a row of scores.
inline constexpr int kRowLanes = cooperating_threads(4);

// Adjacent columns in one vector of a product, and in one step of a lane in the softmax of a row.
inline constexpr int kFmaWidth = kOneThreadBlocks ? kRegisterFloats : 4;
inline constexpr int kSoftmaxWidth = kOneThreadBlocks ? kRegisterFloats : 1;
// Adjacent elements per access of global memory. Head sizes are multiples of it.
inline constexpr int kAccessWidth = kOneThreadBlocks && kRegisterFloats >= 8 ? 8 : 4;

// A thread's index in the block; a constant if there is only one thread.
__device__ __forceinline__ int fma_thread() {
  return kFmaThreads == 1 ? 0 : thread_index();
}
// The same index, but the compiler knows that it is not negative. Signed division rounds towards
// zero, which costs the kernels up to 30 registers. Rows and columns of an FmaBlock are the
// exception: there, plain indices cost fewer registers.
__device__ __forceinline__ int bounded_fma_thread() {
  return static_cast<int>(static_cast<unsigned>(fma_thread()) % kFmaThreads);
}

// kRows x kColumns floats in shared memory. On a GPU rows are padded by 4 floats, so that
// neighbouring rows start on other banks and still at a multiple of 16 bytes. On the host, vectors
// that lie in one cache line are faster.
template <int kRows_, int kColumns_>
struct PaddedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kStride = kColumns + (kOneThreadBlocks ? 0 : 4);
  static constexpr int kElements = kRows * kStride;

  float* data;

  __device__ __forceinline__ float* row(int r) const { return data + r * kStride; }
};

// The factor of rows when they are loaded: 1, the same for all, or the scales of rows of codes,
// `stride` apart.
struct UnscaledRows {
  template <int N>
  __device__ __forceinline__ Floats<N> operator()(const Floats<N>& x, int) const {
    return x;
  }
};
struct SameScale {
  float scale;
  template <int N>
  __device__ __forceinline__ Floats<N> operator()(const Floats<N>& x, int) const {
    return scale * x;
  }
};
struct ScaledRows {
  const float* scales;
  std::int64_t stride;
  template <int N>
  __device__ __forceinline__ Floats<N> operator()(const Floats<N>& x, int row) const {
    return scales[row * stride] * x;
  }
};

// Fills a tile from global memory. Rows are `row_stride` elements apart; elements beyond valid_rows
// or valid_columns become zero. On a GPU, neighbouring threads read neighbouring 16 bytes.
template <class Tile, class T, class Scaling = UnscaledRows>
__device__ LLMC_INLINE_ON_GPU void load_tile(const Tile& tile, const T* rows,
                                             std::int64_t row_stride, int valid_rows,
                                             int valid_columns, const Scaling& scaled = {}) {
  constexpr int N = kAccessWidth;
  constexpr int kVectors = Tile::kColumns / N;
  constexpr int kAcross = kVectors < kFmaThreads ? kVectors : kFmaThreads;
  for (int row = bounded_fma_thread() / kAcross; row < Tile::kRows; row += kFmaThreads / kAcross) {
    const int end = row < valid_rows ? valid_columns : 0;
    for (int c = bounded_fma_thread() % kAcross * N; c < Tile::kColumns; c += kAcross * N) {
      Floats<N> x;
      if (c < end) x = scaled(load_floats<N>(rows + row * row_stride + c), row);
      store_floats(tile.row(row) + c, x);
    }
  }
}

// The same, transposed: column j of the tile is row j of global memory. On a GPU, neighbouring
// threads process neighbouring columns, so that the scattered stores use different banks. On the
// host, squares are transposed in registers.
template <class Tile, class T, class Scaling = UnscaledRows>
__device__ LLMC_INLINE_ON_GPU void load_tile_transposed(const Tile& tile, const T* rows,
                                                        std::int64_t row_stride, int valid_rows,
                                                        int valid_columns,
                                                        const Scaling& scaled = {}) {
  constexpr int N = kAccessWidth;
  constexpr int M = kOneThreadBlocks ? N : 1;  // rows of global memory in a piece
  constexpr int kPieces = Tile::kColumns / M;
  constexpr int kAcross = kPieces < kFmaThreads ? kPieces : kFmaThreads;
  for (int row = bounded_fma_thread() % kAcross * M; row < Tile::kColumns; row += kAcross * M) {
    for (int c = bounded_fma_thread() / kAcross * N; c < Tile::kRows;
         c += kFmaThreads / kAcross * N) {
      const T* corner = rows + row * row_stride + c;
      const int num_valid = c < valid_columns ? valid_rows - row : 0;
      Floats<N> piece[M];
      if (num_valid >= M) {
        for (int r = 0; r < M; ++r)
          piece[r] = scaled(load_floats<N>(corner + r * row_stride), row + r);
      } else {
        for (int r = 0; r < M - 1; ++r) {
          if (r < num_valid) piece[r] = scaled(load_floats<N>(corner + r * row_stride), row + r);
        }
      }
      Floats<M> transposed[N];
      transpose(transposed, piece);
      for (int j = 0; j < N; ++j) store_floats(tile.row(c + j) + row, transposed[j]);
    }
  }
}

// A thread's part of a kRows x kColumns product, zero at first: R consecutive rows, and a vector of
// columns in each of G groups. `kPassRows` rows and `kPassGroups` groups are summed up in registers
// at a time.
template <int kRows, int kColumns>
struct alignas(kOneThreadBlocks ? 64 : 16) FmaBlock {
  static constexpr int kVectors = kColumns / kFmaWidth;
  static constexpr int kMaxThreadColumns = cooperating_threads(16);
  static constexpr int kThreadColumns = kVectors < kMaxThreadColumns ? kVectors : kMaxThreadColumns;
  static constexpr int kThreadRows = kFmaThreads / kThreadColumns;
  static constexpr int R = kRows / kThreadRows;
  static constexpr int G = kVectors / kThreadColumns;
  static constexpr int kGroupStride = kFmaWidth * kThreadColumns;
  static_assert(R * kThreadRows == kRows && kGroupStride * G == kColumns);

  // Half of the registers hold sums: 16 of 32, or 8 of 16.
  static constexpr int kPassGroups = !kOneThreadBlocks || G < 2 ? G : 2;
  static constexpr int kPassRows = kOneThreadBlocks ? kFloatRegisters / 2 / kPassGroups : R;
  static_assert(R % kPassRows == 0 && G % kPassGroups == 0);

  Floats<kFmaWidth> v[R][G];

  __device__ static int row(int r) { return fma_thread() / kThreadColumns * R + r; }
  __device__ static int column(int g) {
    return fma_thread() % kThreadColumns * kFmaWidth + kGroupStride * g;
  }
};

// Calls f(sums, first row, first group) for the parts of c that are summed up in registers at a
// time, except those whose columns are all beyond valid_columns. `sums` is a local copy of the
// part, which tells the compiler that the sums do not alias the operands.
template <class Block, class F>
__device__ __forceinline__ void for_each_pass(Block& c, int valid_columns, const F& f) {
  constexpr int kRows = Block::kPassRows, kGroups = Block::kPassGroups;
  for (int g0 = 0; g0 < Block::G; g0 += kGroups) {
    if (kOneThreadBlocks && Block::column(g0) >= valid_columns) break;
    for (int r0 = 0; r0 < Block::R; r0 += kRows) {
      Floats<kFmaWidth> sums[kRows][kGroups];
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kGroups; ++g) sums[r][g] = c.v[r0 + r][g0 + g];
      }
      f(sums, r0, g0);
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kGroups; ++g) c.v[r0 + r][g0 + g] = sums[r][g];
      }
    }
  }
}

// c += a * b summed over k = 0 .. depth - 1 (a multiple of 4), a[row][k] and b[k][column]. Columns
// of b from valid_columns on are zero.
template <int kRows, int kColumns, class A, class B>
__device__ LLMC_INLINE_ON_GPU void multiply_add(FmaBlock<kRows, kColumns>& c, const A& a,
                                                const B& b, int depth,
                                                int valid_columns = kColumns) {
  using Block = FmaBlock<kRows, kColumns>;
  constexpr int kStep = kOneThreadBlocks ? 1 : 4;  // a GPU loads 16 bytes at a time
  for_each_pass(c, valid_columns, [&](auto& sums, int first_row, int first_group) {
    const float* a_rows = a.row(Block::row(first_row));
    const float* b_columns = b.data + Block::column(first_group);
    for (int k = 0; k < depth; k += kStep) {
      Vec<float, kStep> left[Block::kPassRows];
      for (int r = 0; r < Block::kPassRows; ++r) {
        left[r] = load_vec<kStep>(a_rows + r * A::kStride + k);
      }
      for (int i = 0; i < kStep; ++i) {
        for (int g = 0; g < Block::kPassGroups; ++g) {
          const auto right =
              load_floats<kFmaWidth>(b_columns + (k + i) * B::kStride + Block::kGroupStride * g);
          for (int r = 0; r < Block::kPassRows; ++r) sums[r][g] += left[r][i] * right;
        }
      }
    }
  });
}

// The same with a stored transposed: a[k][row].
template <int kRows, int kColumns, class A, class B>
__device__ LLMC_INLINE_ON_GPU void multiply_add_transposed(FmaBlock<kRows, kColumns>& c, const A& a,
                                                           const B& b, int depth,
                                                           int valid_columns = kColumns) {
  using Block = FmaBlock<kRows, kColumns>;
  static_assert(Block::kPassRows % 4 == 0);
  for_each_pass(c, valid_columns, [&](auto& sums, int first_row, int first_group) {
    const float* a_columns = a.data + Block::row(first_row);
    const float* b_columns = b.data + Block::column(first_group);
    for (int k = 0; k < depth; ++k) {
      Vec<float, 4> left[Block::kPassRows / 4];
      for (int r = 0; r < Block::kPassRows; r += 4) {
        left[r / 4] = load_vec<4>(a_columns + k * A::kStride + r);
      }
      for (int g = 0; g < Block::kPassGroups; ++g) {
        const auto right =
            load_floats<kFmaWidth>(b_columns + k * B::kStride + Block::kGroupStride * g);
        for (int r = 0; r < Block::kPassRows; ++r) {
          sums[r][g] += left[r / 4][r % 4] * right;
        }
      }
    }
  });
}

// Writes a thread's part, times `factor`, to global memory.
template <int kRows, int kColumns, class T>
__device__ LLMC_INLINE_ON_GPU void store_block(T* rows, std::int64_t row_stride, int valid_rows,
                                               int valid_columns,
                                               const FmaBlock<kRows, kColumns>& c, float factor) {
  for (int r = 0; r < c.R; ++r) {
    for (int g = 0; g < c.G; ++g) {
      const Floats<kFmaWidth> product = factor * c.v[r][g];
      for (int part = 0; part < kFmaWidth; part += kAccessWidth) {
        const int column = c.column(g) + part;
        if (c.row(r) >= valid_rows || column >= valid_columns) continue;
        store_floats(rows + c.row(r) * row_stride + column, elements<kAccessWidth>(product, part));
      }
    }
  }
}

// Writes a thread's part to a shared tile.
template <int kRows, int kColumns, class Tile>
__device__ LLMC_INLINE_ON_GPU void store_block(const Tile& tile,
                                               const FmaBlock<kRows, kColumns>& c) {
  for (int r = 0; r < c.R; ++r) {
    for (int g = 0; g < c.G; ++g) store_floats(tile.row(c.row(r)) + c.column(g), c.v[r][g]);
  }
}

// Calls f.template operator()<kHeadTile>() with the width of the tiles for a head. With one thread
// per block, products skip the columns beyond the head, so fewer widths suffice; a narrow one
// saves time for loading small heads.
template <class F>
void dispatch_fma_head_tile(std::int64_t HS, F&& f) {
  if constexpr (kOneThreadBlocks) {
    if (HS <= 16) return f.template operator()<16>();
    if (HS <= 64) return f.template operator()<64>();
    return f.template operator()<128>();
  } else {
    dispatch_head_tile(HS, f);
  }
}

}  // namespace llmc
