// Sums of rows in a fixed order, shared by the bias gradient, LayerNorm's parameter gradients and
// the embedding's gradient. The order depends only on sizes, so results are bitwise repeatable. No
// two threads ever add to the same number.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"

namespace llmc {

// Rows that a warp loads before it adds the first of them. A load takes hundreds of cycles, and the
// addition has to wait for it.
inline constexpr int kPrefetchRows = 4;

// Columns that one block sums: every lane of a warp holds one 16-byte vector of a row.
template <class T>
inline constexpr int kColumnTile = 32 * kVecSize<T>;

// Threads of a block that sums `rows` rows: a warp per kPrefetchRows rows, up to a limit.
inline int column_sum_threads(std::int64_t rows, int max_threads) {
  return static_cast<int>(
      std::clamp<std::int64_t>(32 * ceil_div(rows, kPrefetchRows), 32, max_threads));
}

// Shared memory that block_column_sum needs, in bytes.
template <class T>
std::size_t column_sum_shared(int block_threads) {
  return SharedLayout().add<float>(block_threads / 32 * kColumnTile<T>).bytes();
}

// For each column c of tile number `tile` (below `columns`), one thread calls use(c, sum of
// x[row_of(i)][c] over i < count). Warp w adds rows w, w + W, w + 2W, ... (W warps), then the
// warps' sums are added in warp order. `x` is row-major; rows start `pitch` elements apart. The
// whole block calls this function, once per kernel.
template <class T, class RowOf, class Use>
__device__ __forceinline__ void block_column_sum(const T* x, std::int64_t pitch,
                                                 std::int64_t columns, std::int64_t tile,
                                                 std::int64_t count, RowOf row_of, Use use) {
  constexpr int N = kVecSize<T>;
  constexpr int kTile = kColumnTile<T>;
  SharedMemory shared;
  float* sums = shared.take<float>(warps_per_block() * kTile);  // (W, kTile)

  const std::int64_t first = tile * kTile;
  const std::int64_t column = first + lane() * N;
  Vec<float, N> sum{};
  if (column < columns) {
    for (std::int64_t i = warp_index(); i < count; i += kPrefetchRows * warps_per_block()) {
      Vec<T, N> row[kPrefetchRows]{};
      for (int a = 0; a < kPrefetchRows; ++a) {
        const std::int64_t next = i + a * warps_per_block();
        if (next < count) row[a] = load_vec<N>(x + row_of(next) * pitch + column);
      }
      for (int a = 0; a < kPrefetchRows; ++a) {
        for (int k = 0; k < N; ++k) sum[k] += to_float(row[a][k]);
      }
    }
  }
  store_vec(sums + warp_index() * kTile + lane() * N, sum);
  block_barrier();
  for (int j = thread_index(); j < kTile && first + j < columns; j += block_size()) {
    float total = 0.0f;
    for (int w = 0; w < warps_per_block(); ++w) total += sums[w * kTile + j];
    use(first + j, total);
  }
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
