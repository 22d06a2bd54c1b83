// Products with few rows on the host, as in generation: each number of b is used only a few times,
// so the time is that of reading b. A library would first copy b into a packed layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/executor.h"
#include "llmc/device/workers.h"
#include "llmc/ops/gemm/gemm.h"
#include "llmc/ops/gemm/gemm_host_tile.h"

namespace llmc {

inline constexpr std::int64_t kMaxFewRows = 4;

// Columns of c that a thread computes at once: 1 KiB of fp32 sums per row.
inline constexpr std::int64_t kFewRowsColumns = 256;

// sums[j] += sum over k of a[k] * b[k][j] for b (depth, n) with `ld` elements per row. Four rows of
// b per pass, so that a sum is loaded and stored once per four multiply-adds.
template <class T>
void add_row_times_matrix(float* sums, const float* a, const T* b, std::int64_t ld,
                          std::int64_t depth, std::int64_t n) {
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const T* const row = b + k * ld;
    for (std::int64_t j = 0; j < n; ++j) {
      sums[j] += a[k] * to_float(row[j]) + a[k + 1] * to_float(row[ld + j]) +
                 (a[k + 2] * to_float(row[2 * ld + j]) + a[k + 3] * to_float(row[3 * ld + j]));
    }
  }
  for (; k < depth; ++k) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] += a[k] * to_float(b[k * ld + j]);
  }
}

// Sum over k of a[k] * b[k], as 32 partial sums that fill the vector registers.
template <class T>
float dot_product(const float* a, const T* b, std::int64_t depth) {
  constexpr int kPartial = 32;
  float partial[kPartial] = {};
  std::int64_t k = 0;
  for (; k + kPartial <= depth; k += kPartial) {
    for (int i = 0; i < kPartial; ++i) partial[i] += a[k + i] * to_float(b[k + i]);
  }
  for (int i = 0; k < depth; ++k, ++i) partial[i] += a[k] * to_float(b[k]);
  for (int half = kPartial / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

// Calls f(data, stride) with (rows, columns) of b. fp16 is widened before: loops over it do not
// vectorise, and the copy stays in the L1 cache.
template <class T, class F>
void read_block(const T* b, std::int64_t stride, std::int64_t rows, std::int64_t columns, F f) {
  if constexpr (std::is_same_v<T, fp16>) {
    const Fp32Block block =
        fp32_block(ProductScratch::of_this_thread().b, b, stride, rows, columns);
    f(block.data, block.stride);
  } else {
    f(b, stride);
  }
}

// op(a), dense and in fp32.
template <class TO, class TI>
std::vector<float> widened_rows(const GemmCall<TO, TI>& call) {
  std::vector<float> rows(static_cast<std::size_t>(call.m * call.k));
  for (std::int64_t r = 0; r < call.m; ++r) {
    for (std::int64_t k = 0; k < call.k; ++k) {
      rows[static_cast<std::size_t>(r * call.k + k)] =
          to_float(call.a[call.transpose_a ? k * call.m + r : r * call.k + k]);
    }
  }
  return rows;
}

// The whole product, for at most kMaxFewRows rows. The order of every sum depends only on k.
template <class TO, class TI>
void multiply_few_rows(const GemmCall<TO, TI>& call) {
  const std::vector<float> a = widened_rows(call);
  const auto compute_columns = [&](std::int64_t piece) {
    const std::int64_t first = piece * kFewRowsColumns;
    const IndexRange columns{first, std::min(kFewRowsColumns, call.n - first)};
    float sums[kMaxFewRows][kFewRowsColumns] = {};
    if (call.transpose_b) {
      for (std::int64_t j = 0; j < columns.count; ++j) {
        read_block(call.b + (first + j) * call.k, call.k, 1, call.k, [&](const auto* b, auto) {
          for (std::int64_t r = 0; r < call.m; ++r) {
            sums[r][j] = dot_product(a.data() + r * call.k, b, call.k);
          }
        });
      }
    } else {
      // Slices of k whose part of b stays in the L1 cache for all rows.
      constexpr std::int64_t kDepth = 16;
      for (std::int64_t k = 0; k < call.k; k += kDepth) {
        const std::int64_t depth = std::min(kDepth, call.k - k);
        const auto add = [&](const auto* b, std::int64_t stride) {
          for (std::int64_t r = 0; r < call.m; ++r) {
            add_row_times_matrix(sums[r], a.data() + r * call.k + k, b, stride, depth,
                                 columns.count);
          }
        };
        read_block(call.b + k * call.n + first, call.n, depth, columns.count, add);
      }
    }
    for (std::int64_t r = 0; r < call.m; ++r) {
      finish_row(call, sums[r], r * call.n + first, columns);
    }
  };
  workers().run(ceil_div(call.n, kFewRowsColumns), compute_columns);
}

}  // namespace llmc
