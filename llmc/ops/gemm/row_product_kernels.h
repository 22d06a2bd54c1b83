// The kernel of the products of inference. Rows are processed in groups of up to kGroupRows, each
// group by blocks of its own. A column's terms k are distributed over the lanes of a warp, and the
// lanes' sums are merged by a butterfly. N and K alone determine this order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm/row_product_call.h"

namespace llmc {

namespace row_kernels {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kGroupRows = 4;
inline constexpr int kColumns = 8;            // per warp
inline constexpr std::int64_t kSlice = 2048;  // of K, staged in shared memory

inline std::size_t shared_bytes(std::int64_t K) {
  return SharedLayout()
      .add<float>(kGroupRows * std::min(K, kSlice))
      .add<float>(2 * kGroupRows)
      .bytes();
}

// Mean and 1 / standard deviation of a row, by one warp.
template <class T>
__device__ __forceinline__ void row_statistics(float* statistics, const T* x, std::int64_t K,
                                               float epsilon) {
  float sum = 0, squares = 0;
  for (std::int64_t k = lane(); k < K; k += 32) sum += to_float(x[k]);
  const float mean = warp_sum(sum) / static_cast<float>(K);
  for (std::int64_t k = lane(); k < K; k += 32) {
    const float difference = to_float(x[k]) - mean;
    squares = std::fma(difference, difference, squares);
  }
  const float rstd = 1.0f / std::sqrt(warp_sum(squares) / static_cast<float>(K) + epsilon);
  if (lane() == 0) {
    statistics[0] = mean;
    statistics[1] = rstd;
  }
}

// The epilogue of one sum of row r.
template <class T, class TO, class KV>
__device__ __forceinline__ void finish_sum(const RowProductCall<T, TO, KV>& call, std::int64_t r,
                                           std::int64_t column, float s) {
  if (call.bias != nullptr) s += to_float(call.bias[column]);
  if (call.epilogue == RowEpilogue::qkv) {
    const std::int64_t C = call.C(), part = column / C, c = column % C;
    if (part == 0) {
      call.out[r * C + c] = from_float<TO>(s);
    } else {
      (part == 1 ? call.keys : call.values)[call.cache_row(r) + c] = from_float<KV>(s);
    }
    return;
  }
  if (call.epilogue == RowEpilogue::gelu) s = s * gelu_gate<T>(s);
  if (call.residual != nullptr) s = to_float(call.residual[r * call.out_stride + column]) + s;
  call.out[r * call.out_stride + column] = from_float<TO>(s);
}

// sums[r][c] += the terms of this lane, for rows of `rows` (kGroupRows, depth) in shared memory.
template <class T, class TO, class KV>
__device__ __forceinline__ void add_terms(float (&sums)[kGroupRows][kColumns], const float* rows,
                                          std::int64_t depth, const RowProductCall<T, TO, KV>& call,
                                          std::int64_t k, std::int64_t column) {
  constexpr int V = kVecSize<T>;
  if (call.epilogue == RowEpilogue::logits) {
    for (std::int64_t i = lane() * V; i < depth; i += 32 * V) {
      for (int c = 0; c < kColumns; ++c) {
        if (column + c >= call.N) continue;
        const Vec<T, V> w = load_vec<V>(call.weight + (column + c) * call.K + k + i);
        for (int r = 0; r < kGroupRows; ++r) {
          for (int v = 0; v < V; ++v)
            sums[r][c] = std::fma(rows[r * depth + i + v], to_float(w[v]), sums[r][c]);
        }
      }
    }
    return;
  }
  for (std::int64_t i = lane(); i < depth; i += 32) {
    for (int c = 0; c < kColumns; c += V) {
      const Vec<T, V> w = load_vec<V>(call.weight + (k + i) * call.N + column + c);
      for (int r = 0; r < kGroupRows; ++r) {
        for (int v = 0; v < V; ++v)
          sums[r][c + v] = std::fma(rows[r * depth + i], to_float(w[v]), sums[r][c + v]);
      }
    }
  }
}

}  // namespace row_kernels

// Grid (column tiles, groups of rows).
template <class T, class TO, class KV>
__global__ __launch_bounds__(row_kernels::kThreads) void row_product_kernel(
    RowProductCall<T, TO, KV> call) {
  using namespace row_kernels;
  SharedMemory shared;
  float* const rows = shared.take<float>(kGroupRows * (call.K < kSlice ? call.K : kSlice));
  float* const statistics = shared.take<float>(2 * kGroupRows);
  allow_next_launch();
  wait_for_previous_launch();
  const std::int64_t first = block_y() * kGroupRows;
  const std::int64_t count = call.M - first < kGroupRows ? call.M - first : kGroupRows;
  const std::int64_t column = (block_x() * kWarps + warp_index()) * kColumns;
  if (call.norm_weight != nullptr) {
    for (std::int64_t r = warp_index(); r < count; r += kWarps)
      row_statistics(statistics + 2 * r, call.inp + (first + r) * call.K, call.K,
                     call.norm_epsilon);
  }
  float sums[kGroupRows][kColumns] = {};
  for (std::int64_t k = 0; k < call.K; k += kSlice) {
    const std::int64_t depth = call.K - k < kSlice ? call.K - k : kSlice;
    block_barrier();
    for (std::int64_t i = thread_index(); i < kGroupRows * depth; i += kThreads) {
      const std::int64_t r = i / depth, c = k + i % depth;
      float x = r < count ? to_float(call.inp[(first + r) * call.K + c]) : 0.0f;
      if (call.norm_weight != nullptr && r < count) {
        const float z = statistics[2 * r + 1] * (x - statistics[2 * r]);
        x = to_float(
            from_float<T>(std::fma(z, to_float(call.norm_weight[c]), to_float(call.norm_bias[c]))));
      }
      rows[i] = x;
    }
    block_barrier();
    if (column < call.N) add_terms(sums, rows, depth, call, k, column);
  }
  if (column >= call.N) return;
  // Each lane finishes one of the 32 sums of the warp.
  static_assert(kGroupRows * kColumns == 32);
  float total = 0;
  for (int r = 0; r < kGroupRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const float sum = warp_sum(sums[r][c]);
      if (lane() == r * kColumns + c) total = sum;
    }
  }
  const int r = lane() / kColumns, c = lane() % kColumns;
  if (r < count && column + c < call.N) finish_sum(call, first + r, column + c, total);
}

// Launches the kernel; both kinds of rows.
template <class T, class TO, class KV>
void launch_row_product(const RowProductCall<T, TO, KV>& call, Stream& stream) {
  using namespace row_kernels;
  // A grid has at most 65535 groups of rows: 262140 rows.
  launch_overlapped(row_product_kernel<T, TO, KV>,
                    Grid{ceil_div(call.N, kWarps * kColumns), ceil_div(call.M, kGroupRows), 1},
                    kThreads, shared_bytes(call.K), stream, call);
}

}  // namespace llmc
