// Sums of rows in a fixed order, shared by the bias gradient, LayerNorm's parameter gradients and
// the embedding's gradient. The order depends only on sizes, so results are bitwise repeatable. No
// two threads ever add to the same number.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"

namespace llmc {

// Rows that a warp loads before it adds the first of them. On a GPU a load takes hundreds of
// cycles, and the addition has to wait for it.
inline constexpr int kPrefetchRows = kOneThreadBlocks ? 1 : 4;

// Columns that a lane sums at a time: a 16-byte vector of a row; the one thread of a host's block
// uses several SIMD registers.
template <class T>
inline constexpr int kColumnVector = kOneThreadBlocks ? 64 : kVecSize<T>;

// Columns that one block sums, one vector per lane on a GPU.
template <class T>
inline constexpr int kColumnTile = kOneThreadBlocks ? 256 : 32 * kVecSize<T>;

// Threads of a block that sums `rows` rows: a warp per kPrefetchRows rows, up to a limit.
inline int column_sum_threads(std::int64_t rows, int max_threads) {
  return cooperating_threads(static_cast<int>(
      std::clamp<std::int64_t>(32 * ceil_div(rows, kPrefetchRows), 32, max_threads)));
}

// Shared memory that block_column_sum needs, in bytes.
template <class T>
std::size_t column_sum_shared(int block_threads) {
  return SharedLayout().add<float>(ceil_div(block_threads, 32) * kColumnTile<T>).bytes();
}

// Sum of load(i, column), N columns of row i from `column` on, for i = first, first + step, ...
// below count.
template <int N, class Load>
__device__ __forceinline__ Floats<N> sum_rows(std::int64_t column, std::int64_t first,
                                              std::int64_t step, std::int64_t count, Load load) {
  Floats<N> sum;
  for (std::int64_t i = first; i < count; i += kPrefetchRows * step) {
    Floats<N> rows[kPrefetchRows];
    for (int a = 0; a < kPrefetchRows; ++a) {
      const std::int64_t next = i + a * step;
      if (a == 0 || next < count) rows[a] = load.template operator()<N>(next, column);
    }
    for (int a = 0; a < kPrefetchRows; ++a) sum += rows[a];
  }
  return sum;
}

// For each column c of tile number `tile` (below `columns`, a multiple of 8), one thread calls
// use(c, sum over i < count). load.operator()<N>(i, c) returns the numbers of row i in the columns
// c to c + N - 1; T sets how many are loaded at a time. Warp w adds rows w, w + W, w + 2W, ... (W
// warps), then the warps' sums are added in warp order. The whole block calls this function, once
// per kernel.
template <class T, class Load, class Use>
__device__ __forceinline__ void block_sum_of_columns(std::int64_t columns, std::int64_t tile,
                                                     std::int64_t count, Load load, Use use) {
  constexpr int N = kColumnVector<T>;
  constexpr int kTile = kColumnTile<T>;
  const int warps = cooperating_threads(warps_per_block());
  SharedMemory shared;
  float* sums = shared.take<float>(warps * kTile);  // (W, kTile)

  const std::int64_t first = tile * kTile;
  const int end = static_cast<int>(columns - first < kTile ? columns - first : kTile);
  float* warp_sums = sums + warp_index() * kTile;
  for (int j = lane() * N; j < end; j += cooperating_threads(32) * N) {
    const std::int64_t column = first + j;
    if (N <= 8 || j + N <= end) {
      store_floats(warp_sums + j, sum_rows<N>(column, warp_index(), warps, count, load));
    } else {
      for (int part = 0; j + part < end; part += 8) {
        store_floats(warp_sums + j + part,
                     sum_rows<8>(column + part, warp_index(), warps, count, load));
      }
    }
  }
  block_barrier();
  for (int j = thread_index(); j < end; j += cooperating_threads(block_size())) {
    float total = 0.0f;
    for (int w = 0; w < warps; ++w) total += sums[w * kTile + j];
    use(first + j, total);
  }
}

// The same of x[row_of(i)][c], where `x` is row-major and its rows start `pitch` elements apart.
template <class T, class RowOf, class Use>
__device__ __forceinline__ void block_column_sum(const T* x, std::int64_t pitch,
                                                 std::int64_t columns, std::int64_t tile,
                                                 std::int64_t count, RowOf row_of, Use use) {
  block_sum_of_columns<T>(
      columns, tile, count,
      [=]<int N>(std::int64_t i, std::int64_t c) {
        return load_floats<N>(x + row_of(i) * pitch + c);
      },
      use);
}

// out_k[c] += sum over p of partials[p][k][c], for each of the one or two outputs k = block_y.
inline __global__ void add_partial_sums_kernel(float* out0, float* out1, const float* partials,
                                               std::int64_t parts, std::int64_t columns) {
  const std::int64_t outputs = grid_y();
  float* out = block_y() == 0 ? out0 : out1;
  block_column_sum<float>(
      partials + block_y() * columns, outputs * columns, columns, block_x(), parts,
      [](std::int64_t i) { return i; }, [=](std::int64_t c, float sum) { out[c] += sum; });
}

// Second stage of a column sum. Adds to out0 (C) and, unless it is null, to out1 (C). The first
// stage wrote partials (parts, 1 or 2 outputs, C).
inline void add_partial_sums(float* out0, float* out1, const float* partials, std::int64_t parts,
                             std::int64_t columns, Stream& stream) {
  const int threads = column_sum_threads(parts, 512);
  launch(add_partial_sums_kernel,
         Grid{ceil_div(columns, kColumnTile<float>), out1 == nullptr ? 1 : 2, 1}, threads,
         column_sum_shared<float>(threads), stream, out0, out1, partials, parts, columns);
}

}  // namespace llmc
