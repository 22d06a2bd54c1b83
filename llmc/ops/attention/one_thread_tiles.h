// Building blocks of attention in one thread per block (device/block_threads.h): tiles of words
// (device/words.h), and products of two tiles.
//
// A product sums over the numbers in words of a, one broadcast at a time, times vectors of words
// of b: sums[row][column] += sum over steps of a(row, step) * b[step][column]. So b has a row for
// each step, and a is read in one of two orders. E is the type of the numbers in words.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/device/words.h"
#include "llmc/ops/attention/attention_tiles_fma.h"

namespace llmc {

// kRows x kColumns words in shared memory.
template <int kRows_, int kColumns_>
struct WordTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kElements = kRows * kColumns;

  Word* data;

  __device__ __forceinline__ Word* row(int r) const { return data + r * kColumns; }
};

// The weight of a score in units of log2. In bf16 it is rounded to 8 bits.
template <class E, int N>
__device__ __forceinline__ Floats<N> word_exp2(const Floats<N>& x) {
  return std::is_same_v<E, float> ? accurate_exp2(x) : fast_exp2(x);
}

// The rows and vectors of columns of a product that are summed up in registers at a time: half of
// the registers hold sums.
inline constexpr int kPassGroups = 2;
inline constexpr int kPassRows = kFloatRegisters / 2 / kPassGroups;
inline constexpr int kPassColumns = kPassGroups * kFmaWidth;

// How a product reads its left operand: a row has its steps one after the other, or a step has the
// words of all rows.
enum class LeftOrder { rows, steps };

// The sums of a pass.
template <int kGroups>
using PassSums = Floats<kFmaWidth>[kPassRows][kGroups];

// Adds `depth` steps to the sums. `a` and `b` point at the first row, step and column.
template <class E, LeftOrder kOrder, int kGroups>
__device__ __forceinline__ void add_steps(PassSums<kGroups>& sums, const Word* a, int a_stride,
                                          const Word* b, int b_stride, int depth) {
  for (int step = 0; step < depth; ++step) {
    Words<kFmaWidth> right[kGroups];
    for (int g = 0; g < kGroups; ++g)
      right[g] = load_words<kFmaWidth>(b + step * b_stride + g * kFmaWidth);
    for (int r = 0; r < kPassRows; ++r) {
      const Words<kFmaWidth> left(kOrder == LeftOrder::rows ? a[r * a_stride + step]
                                                            : a[step * a_stride + r]);
      for (int g = 0; g < kGroups; ++g) sums[r][g] = add_products<E>(sums[r][g], left, right[g]);
    }
  }
}

// Sums of kRows x kColumns in memory, in vectors of columns.
template <int kRows, int kColumns>
struct alignas(64) SumTile {
  static constexpr int R = kRows;
  static constexpr int G = kColumns / kFmaWidth;
  static constexpr int kGroups = G < kPassGroups ? G : kPassGroups;
  static_assert(G % kGroups == 0 && R % kPassRows == 0);

  Floats<kFmaWidth> v[R][G];
};

// Calls f(sums, row, group) for the passes of `sums` with rows first .. end - 1 and with columns
// below `columns`. In f, they are a local copy of the pass, in registers.
template <class Sums, class F>
__device__ __forceinline__ void for_each_sum_pass(Sums& sums, int first, int end, int columns,
                                                  const F& f) {
  constexpr int kGroups = Sums::kGroups;
  for (int g0 = 0; g0 * kFmaWidth < columns; g0 += kGroups) {
    for (int r0 = first; r0 < end; r0 += kPassRows) {
      PassSums<kGroups> part;
      for (int r = 0; r < kPassRows; ++r) {
        for (int g = 0; g < kGroups; ++g) part[r][g] = sums.v[r0 + r][g0 + g];
      }
      f(part, r0, g0);
      for (int r = 0; r < kPassRows; ++r) {
        for (int g = 0; g < kGroups; ++g) sums.v[r0 + r][g0 + g] = part[r][g];
      }
    }
  }
}

// Writes the first rows and columns of sums, times `factor`, to global memory.
template <class T, class Sums>
__device__ LLMC_INLINE_ON_GPU void store_sums(T* rows, std::int64_t row_stride, int valid_rows,
                                              int valid_columns, const Sums& sums, float factor) {
  constexpr int N = kFmaWidth > 8 ? 8 : kFmaWidth;  // head sizes are multiples of 8
  for (int r = 0; r < valid_rows; ++r) {
    for (int c = 0; c < valid_columns; c += N) {
      const Floats<kFmaWidth> x = factor * sums.v[r][c / kFmaWidth];
      store_floats(rows + r * row_stride + c, elements<N>(x, c % kFmaWidth));
    }
  }
}

// ---- loads -------------------------------------------------------------------------------------

// Rows of global memory for a tile: elements beyond valid_rows or valid_columns are zero.
template <class T, class Scaling = UnscaledRows>
struct SourceRows {
  const T* data;
  std::int64_t stride;
  int valid_rows, valid_columns;
  Scaling scaling{};

  __device__ __forceinline__ const T* row(int r) const { return data + r * stride; }
};

// Calls f.template operator()<n>(c) for the columns below `valid` (a multiple of 8), n at a time,
// and zero(c) for 8 each of the others below `all`.
template <int N, class F, class Zero>
__device__ __forceinline__ void for_each_column(int valid, int all, const F& f, const Zero& zero) {
  int c = 0;
  for (; c + N <= valid; c += N) f.template operator()<N>(c);
  for (; c < valid; c += 8) f.template operator()<8>(c);
  for (; c < all; c += 8) zero(c);
}

// A row of the tile is a row of the source.
template <class E, class Tile, class T, class Scaling>
__device__ LLMC_INLINE_ON_GPU void load_word_rows(const Tile& tile,
                                                  const SourceRows<T, Scaling>& source) {
  constexpr int P = kWordNumbers<E>, N = kFmaWidth > 8 ? kFmaWidth * P : 8;
  for (int row = 0; row < Tile::kRows; ++row) {
    Word* const words = tile.row(row);
    const int end = row < source.valid_rows ? source.valid_columns : 0;
    const auto load = [&]<int n>(int c) {
      if constexpr (std::is_same_v<E, float>) {
        store_words(words + c, words_of(source.scaling(load_floats<n>(source.row(row) + c), row)));
      } else {
        std::memcpy(words + c / P, source.row(row) + c, n * sizeof(T));
      }
    };
    for_each_column<N>(end, Tile::kColumns * P, load,
                       [&](int c) { store_words(words + c / P, Words<8 / P>()); });
  }
}

// A column of the tile is a row of the source, in words. Squares are transposed in registers.
template <class E, class Tile, class T, class Scaling>
__device__ LLMC_INLINE_ON_GPU void load_word_columns(const Tile& tile,
                                                     const SourceRows<T, Scaling>& source) {
  constexpr int N = 8, P = kWordNumbers<E>;
  for (int row = 0; row < Tile::kColumns; row += N) {
    for (int c = 0; c < Tile::kRows; c += N) {
      Floats<N> piece[N], transposed[N];
      for (int r = 0; r < N; ++r) {
        for (int part = 0; part < N * P; part += 8) {
          if (row + r >= source.valid_rows || c * P + part >= source.valid_columns) continue;
          const T* const numbers = source.row(row + r) + c * P + part;
          if constexpr (std::is_same_v<E, float>) {
            piece[r] = source.scaling(load_floats<N>(numbers), row + r);
          } else {
            std::memcpy(reinterpret_cast<char*>(&piece[r]) + 2 * part, numbers, 16);
          }
        }
      }
      transpose(transposed, piece);
      for (int j = 0; j < N; ++j) store_words(tile.row(c + j) + row, words_of(transposed[j]));
    }
  }
}

// A row of the tile has the numbers of kWordNumbers rows of the source, column by column.
template <class E, class Tile, class T, class Scaling>
__device__ LLMC_INLINE_ON_GPU void load_word_steps(const Tile& tile,
                                                   const SourceRows<T, Scaling>& source) {
  if constexpr (std::is_same_v<E, float>) {
    load_word_rows<E>(tile, source);
  } else {
    constexpr int N = kFmaWidth > 8 ? kFmaWidth : 8;
    alignas(64) constexpr bf16 kZeros[Tile::kColumns] = {};
    for (int step = 0; step < Tile::kRows; ++step) {
      Word* const words = tile.row(step);
      const int rows = source.valid_rows - 2 * step;
      const bf16* const lower = source.row(2 * step);
      const bf16* const upper = rows > 1 ? source.row(2 * step + 1) : kZeros;
      for_each_column<N>(
          rows > 0 ? source.valid_columns : 0, Tile::kColumns,
          [&]<int n>(int c) { store_words(words + c, load_paired<n>(lower + c, upper + c)); },
          [&](int c) { store_words(words + c, Words<8>()); });
    }
  }
}

}  // namespace llmc
