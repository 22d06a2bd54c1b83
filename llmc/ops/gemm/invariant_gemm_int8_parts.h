// Parts of the kernels of products with INT8 weights (code_matrix.h).
//
// A lane's 16 bytes of a chunk are loaded directly into registers: they are the operand A (columns,
// terms) of a tensor core. The rows of inp are operand B. Blocks stage them in shared memory, as
// type S: codes (w8a8), or T (w8), normalised and rounded to T first if the call has a norm. Sums
// of codes are exact. Codes of weights become T without rounding, so a sum of float rows has the
// rounding of a product of T; it is scaled at the end.
//
// LayerNorm has the bits of training's kernel (layernorm.h) where that gives each row to one warp:
// up to 1024 channels on a GPU. Longer rows have the order of a warp here and that of a block
// there.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/gemm/invariant_gemm_parts.h"
#include "llmc/ops/quantize.h"

namespace llmc::row_kernels {

// ---- weights -------------------------------------------------------------------------------

// The calling lane's codes of a chunk. With lane = 4g + t, register 2i + j has the terms 8t + 4i ..
// 8t + 4i + 3 of column g + 8j.
struct ChunkCodes {
  std::uint32_t r[4] = {};
};

__device__ __forceinline__ ChunkCodes load_chunk(const std::int8_t* chunk) {
  const Vec<std::int8_t, 16> bytes = load_vec<16>(chunk + lane() * 16);
  ChunkCodes codes;
  std::memcpy(codes.r, &bytes, sizeof codes.r);
  return codes;
}

// Code i of four. Exact: a float of 2^23 + n has n in its low bits.
__device__ __forceinline__ float code_number(std::uint32_t four, int i) {
  constexpr float kOffset = 8388608;
  const std::uint32_t shifted = (four ^ 0x80808080u) >> 8 * i & 0xffu;  // code + 128
  return float_from_bits(bits_of(kOffset) | shifted) - (kOffset + 128);
}

// ---- products ------------------------------------------------------------------------------

// A chunk, ready to be multiplied by groups of 8 rows of type S. `add` adds to a warp's sums of a
// group; load(row) returns the terms 8t .. 8t + 7 of a row of the group. `for_each` calls f(row,
// column, sum) for the sums that the calling lane is to write.
template <class S>
struct CodeFragment {
  using Sum = float;
  static constexpr int kSums = 4;
  std::uint32_t a[2][4];

  __device__ __forceinline__ explicit CodeFragment(const ChunkCodes& codes) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t four = codes.r[2 * i + j];
        a[i][j] = pack2<S>(code_number(four, 0), code_number(four, 1));
        a[i][2 + j] = pack2<S>(code_number(four, 2), code_number(four, 3));
      }
    }
  }
  template <class Load>
  __device__ __forceinline__ void add(Sum (&sums)[kSums], const Load& load) const {
    const Vec<S, 8> x = load(lane() / 4);
    std::uint32_t b[2][2];
    std::memcpy(b, &x, sizeof b);
    for (int i = 0; i < 2; ++i) mma_m16n8k16<S>(sums, a[i], b[i]);
  }
  template <class Sums, class F>
  static __device__ __forceinline__ void for_each(const Sums& sums, const F& f) {
    for (int i = 0; i < 4; ++i) f(lane() % 4 * 2 + i % 2, lane() / 4 + i / 2 * 8, sums[i]);
  }
};

template <>
struct CodeFragment<std::int8_t> {
  using Sum = std::int32_t;
  static constexpr int kSums = 4;
  ChunkCodes codes;

  __device__ __forceinline__ explicit CodeFragment(const ChunkCodes& codes) : codes(codes) {}
  template <class Load>
  __device__ __forceinline__ void add(Sum (&sums)[kSums], const Load& load) const {
    const Vec<std::int8_t, 8> x = load(lane() / 4);
    std::uint32_t b[2];
    std::memcpy(b, &x, sizeof b);
    mma_m16n8k32_s8(sums, codes.r, b);
  }
  template <class F>
  static __device__ __forceinline__ void for_each(const Sum (&sums)[kSums], const F& f) {
    CodeFragment<bf16>::for_each(sums, f);
  }
};

// fp32: a lane adds its 8 terms of the columns g and g + 8 for all rows of the group.
template <>
struct CodeFragment<float> {
  using Sum = float;
  static constexpr int kSums = 16;
  float w[2][8];

  __device__ __forceinline__ explicit CodeFragment(const ChunkCodes& codes) {
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 4; ++k) w[i % 2][i / 2 * 4 + k] = code_number(codes.r[i], k);
    }
  }
  template <class Load>
  __device__ __forceinline__ void add(Sum (&sums)[kSums], const Load& load) const {
    for (int row = 0; row < 8; ++row) {
      const Vec<float, 8> x = load(row);
      for (int k = 0; k < 8; ++k) {
        for (int j = 0; j < 2; ++j) sums[2 * row + j] = std::fma(x[k], w[j][k], sums[2 * row + j]);
      }
    }
  }
  template <class F>
  static __device__ __forceinline__ void for_each(const Sum (&sums)[kSums], const F& f) {
    for (int i = 0; i < kSums; ++i) {
      const float sum = quad_sum(sums[i]);
      if (lane() % 4 == i / 2 % 4) f(i / 2, lane() / 4 + i % 2 * 8, sum);
    }
  }
};

// ---- rows ----------------------------------------------------------------------------------

// Elements between rows of `terms` terms in shared memory. 32 more than a multiple of 128: the
// loads of a warp, 8 terms of 8 rows each, then have no bank conflicts.
__host__ __device__ constexpr int staged_stride(int terms) {
  return static_cast<int>(round_up(terms, 128)) + 32;
}

// The rows of a group in shared memory.
template <class S>
struct StagedRows {
  const S* memory;
  int stride, count;

  // Terms k + 8t .. k + 8t + 7, zeros for rows that do not exist.
  __device__ __forceinline__ Vec<S, 8> load(int row, int k) const {
    if (row < count) return load_vec<8>(memory + row * stride + k + lane() % 4 * 8);
    return {};
  }
};

// How the numbers of a row are read.
struct RowReading {
  RowStatistics statistics;
  Quantization quantization;
};

// Calls f(k, V numbers from k on) for the calling lane's numbers of a row, in ascending order, if
// the row is divided among `parts` warps. Several loads are in flight at the same time.
template <int V, class T, class F>
__device__ __forceinline__ void for_lane_numbers(const T* x, std::int64_t K, const F& f,
                                                 int part = 0, int parts = 1) {
  constexpr int kTogether = 64 / (V * static_cast<int>(sizeof(T)));
  const int stride = 32 * V * parts;
  for (std::int64_t k = (part * 32 + lane()) * V; k < K; k += stride * kTogether) {
    Vec<T, V> loaded[kTogether];
    for (int i = 0; i < kTogether; ++i) {
      if (k + i * stride < K) loaded[i] = load_vec<V>(x + k + i * stride);
    }
    for (int i = 0; i < kTogether; ++i) {
      if (k + i * stride < K) f(k + i * stride, loaded[i]);
    }
  }
}

// As normalise_row (layernorm_row.h) with a warp per row.
template <class T>
__device__ __forceinline__ RowStatistics warp_statistics(const T* x, std::int64_t K,
                                                         float epsilon) {
  constexpr int V = kVecSize<T>;
  ThreadSum<V> sum;
  for_lane_numbers<V>(x, K, [&](std::int64_t, const Vec<T, V>& v) { sum.add(to_floats(v)); });
  const float mean = warp_sum(sum.total()) / static_cast<float>(K);
  ThreadSum<V> squares;
  for_lane_numbers<V>(x, K, [&](std::int64_t, const Vec<T, V>& v) {
    const Floats<V> difference = to_floats(v) - mean;
    squares.add_product(difference, difference);
  });
  return {mean, 1.0f / std::sqrt(warp_sum(squares.total()) / static_cast<float>(K) + epsilon)};
}

// Eight numbers of a row as the product reads them before it quantizes, from those stored at k.
template <class T, class TO, class KV>
__device__ __forceinline__ Vec<T, 8> read_numbers(const InvariantGemmCall<T, TO, KV>& call,
                                                  const RowStatistics& statistics,
                                                  const Vec<T, 8>& x, std::int64_t k) {
  if (call.norm_weight == nullptr) return x;
  return normalise(x, statistics, call.norm_weight + k, call.norm_bias + k);
}

// The same as type S.
template <class S, class T, class TO, class KV>
__device__ __forceinline__ Vec<S, 8> staged_numbers(const InvariantGemmCall<T, TO, KV>& call,
                                                    const RowReading& reading, const Vec<T, 8>& x,
                                                    std::int64_t k) {
  const Vec<T, 8> numbers = read_numbers(call, reading.statistics, x, k);
  if constexpr (std::is_same_v<S, std::int8_t>) {
    return CodeRounding(reading.quantization).codes(to_floats(numbers));
  } else {
    return numbers;
  }
}

// Zeros if the call has no norm; by one warp.
template <class T, class TO, class KV>
__device__ __forceinline__ RowStatistics statistics_of(const InvariantGemmCall<T, TO, KV>& call,
                                                       std::int64_t r) {
  if (call.norm_weight == nullptr) return {};
  return warp_statistics(call.inp + r * call.K, call.K, call.norm_epsilon);
}

// The range of the numbers of a part of row r, by one warp. One that is not finite has an infinite
// maximum, whatever its minimum is.
template <class T, class TO, class KV>
__device__ __forceinline__ ValueRange range_of(const InvariantGemmCall<T, TO, KV>& call,
                                               std::int64_t r, const RowStatistics& statistics,
                                               int part = 0, int parts = 1) {
  RangeOfVectors<8> numbers;
  const auto add = [&](std::int64_t k, const Vec<T, 8>& x) {
    numbers.add(to_floats(read_numbers(call, statistics, x, k)));
  };
  for_lane_numbers<8>(call.inp + r * call.K, call.K, add, part, parts);
  const ValueRange own = numbers.range();
  return {-warp_max(-own.min), warp_max(own.max)};
}

// The quantization of row r. Exactly one thread per row has reports_faults.
template <class T, class TO, class KV>
__device__ __forceinline__ Quantization quantization_of(const InvariantGemmCall<T, TO, KV>& call,
                                                        std::int64_t r, const ValueRange& range,
                                                        bool reports_faults) {
  const Quantization q = activation_quantization(range, call.quantizer.zero_points);
  if (reports_faults && !q.finite()) call.faults.report(r);
  return call.quantizer.is_fixed && q.finite() ? call.quantizer.fixed : q;
}

// ---- epilogue ------------------------------------------------------------------------------

// Finishes V neighbouring sums of row r.
template <bool kLogits, int V, class Sum, class T, class TO, class KV>
__device__ __forceinline__ void finish_code_sums(const InvariantGemmCall<T, TO, KV>& call,
                                                 std::int64_t r, std::int64_t column,
                                                 const Vec<Sum, V>& sums, const Quantization& q,
                                                 const EpilogueInputs<V>& inputs) {
  Vec<float, V> numbers;
  for (int v = 0; v < V; ++v) {
    if constexpr (std::is_same_v<Sum, std::int32_t>) {
      numbers[v] = static_cast<float>(sums[v] - q.zero * call.codes.sums[column + v]);
    } else {
      numbers[v] = sums[v];
    }
  }
  const Floats<V> results =
      dequantize_sums(to_floats(numbers), q.scale, load_numbers<V>(call.codes.scales + column),
                      column_bias<V>(call, column));
  if constexpr (kLogits) {
    finish_logits<V>(call, r, column, results);
  } else {
    finish_sums<V>(call, r, column, results, inputs);
  }
}

// Calls f.operator()<S>() with the type that the rows of a product have in shared memory. The input
// of the logits is never quantized.
template <bool kLogits, class T, class TO, class KV, class F>
void with_staged_type(const InvariantGemmCall<T, TO, KV>& call, const F& f) {
  if constexpr (!kLogits) {
    if (call.quantizer.enabled) return f.template operator()<std::int8_t>();
  }
  f.template operator()<T>();
}

}  // namespace llmc::row_kernels
