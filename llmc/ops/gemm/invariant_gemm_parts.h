// Parts that the kernels of the products of inference share: LayerNorm of the rows that a block
// reads, and the epilogue.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/activation_value.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"

namespace llmc::row_kernels {

// Calls f.operator()<i>() for i = 0 .. kCount - 1: with constant indices, nvcc keeps arrays in
// registers also if the body is too large for a loop that it would unroll.
template <int kCount, class F>
__device__ __forceinline__ void for_constants(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f.template operator()<i>(), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// V stored numbers; V is 1 or a multiple of 4.
template <int V, class T>
__device__ __forceinline__ Floats<V> load_numbers(const T* p) {
  if constexpr (V == 1) {
    return to_float(*p);
  } else {
    return load_floats<V>(p);
  }
}
template <int V, class T>
__device__ __forceinline__ void store_numbers(T* p, const Floats<V>& x) {
  if constexpr (V == 1) {
    *p = from_float<T>(x[0]);
  } else {
    store_floats(p, x);
  }
}

// ---- norm ----------------------------------------------------------------------------------

struct RowStatistics {
  float mean = 0;
  float rstd = 0;  // 1 / standard deviation
};

// Statistics of `count` rows of x, but at most kRows, by one warp. kVectors loads of each row are
// in flight at the same time. Neither number changes a bit: the order of additions is fixed, and
// every multiply-add is explicit.
template <int kRows, int kVectors, class T>
__device__ __forceinline__ void row_statistics(RowStatistics* statistics, const T* x, int count,
                                               std::int64_t K, float epsilon) {
  constexpr int V = kVecSize<T>;
  // Calls f(row, V numbers of it) for the calling lane's numbers, in ascending order.
  const auto for_each = [&](const auto& f) {
    for (std::int64_t k = lane() * V; k < K; k += 32 * V * kVectors) {
      Vec<T, V> loaded[kRows][kVectors];
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kVectors; ++i) {
          if (r < count && k + i * 32 * V < K)
            loaded[r][i] = load_vec<V>(x + r * K + k + i * 32 * V);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kVectors; ++i) {
          if (r < count && k + i * 32 * V < K) f(r, to_floats(loaded[r][i]));
        }
      }
    }
  };
  float mean[kRows] = {}, squares[kRows] = {};
  for_each([&](int r, const Floats<V>& numbers) { mean[r] += sum_of(numbers); });
  for (int r = 0; r < kRows; ++r) {
    if (r < count) mean[r] = warp_sum(mean[r]) / static_cast<float>(K);
  }
  for_each([&](int r, const Floats<V>& numbers) {
    const Floats<V> difference = numbers - mean[r];
    for (int v = 0; v < V; ++v) squares[r] = std::fma(difference[v], difference[v], squares[r]);
  });
  for (int r = 0; r < kRows; ++r) {
    if (r >= count) break;
    const float variance = warp_sum(squares[r]) / static_cast<float>(K);
    if (lane() == 0) statistics[r] = {mean[r], 1.0f / std::sqrt(variance + epsilon)};
  }
}

// V numbers of a row, normalised and rounded to T. weight and bias belong to the same columns.
template <int V, class T>
__device__ __forceinline__ Vec<T, V> normalise(const Vec<T, V>& x, const RowStatistics& statistics,
                                               const T* weight, const T* bias) {
  const Floats<V> z = statistics.rstd * (to_floats(x) - statistics.mean);
  return from_floats<T>(multiply_add(z, load_floats<V>(weight), load_floats<V>(bias)));
}

// ---- epilogue ------------------------------------------------------------------------------

// Inputs of the epilogue of V neighbouring sums of a row. Loaded early, they cost no latency at the
// end.
template <int V>
struct EpilogueInputs {
  Floats<V> residual;          // zeros if the call has none
  std::int64_t cache_row = 0;  // first element of the row's cache row; only qkv
};

template <int V, class T, class TO, class KV>
__device__ __forceinline__ EpilogueInputs<V> epilogue_inputs(
    const InvariantGemmCall<T, TO, KV>& call, std::int64_t r, std::int64_t column) {
  EpilogueInputs<V> inputs;
  if (r >= call.M || column >= call.N) return inputs;
  if (call.residual != nullptr)
    inputs.residual = load_numbers<V>(call.residual + r * call.out_stride + column);
  if (call.epilogue == RowEpilogue::qkv) inputs.cache_row = call.cache_row(r);
  return inputs;
}

// The bias of V neighbouring columns; zeros if the call has none.
template <int V, class T, class TO, class KV>
__device__ __forceinline__ Floats<V> column_bias(const InvariantGemmCall<T, TO, KV>& call,
                                                 std::int64_t column) {
  if (call.bias == nullptr || column >= call.N) return {};
  return load_numbers<V>(call.bias + column);
}

// Finishes V neighbouring sums s of row r, which include the bias. V divides 8 and `column`. If KV
// is int8, a call of finish_heads (invariant_gemm_heads.h) must follow.
template <int V, class T, class TO, class KV>
__device__ __forceinline__ void finish_sums(const InvariantGemmCall<T, TO, KV>& call,
                                            std::int64_t r, std::int64_t column, Floats<V> s,
                                            const EpilogueInputs<V>& inputs) {
  const std::int64_t C = call.C();
  if (call.epilogue == RowEpilogue::qkv && column >= C) {
    if constexpr (kIsQuantized<KV>) {
      return store_numbers(call.head_sums + r * 2 * C + column - C, s);
    } else {
      const bool is_key = column < 2 * C;
      KV* const cache = (is_key ? call.keys : call.values) + inputs.cache_row;
      return store_numbers(cache + column - (is_key ? C : 2 * C), s);
    }
  }
  if (call.epilogue == RowEpilogue::activation) {
    s = activation_value<T>(call.activation, s);
    if (call.gelu_factors != nullptr) s *= load_numbers<V>(call.gelu_factors + column);
  }
  const std::int64_t stride = call.epilogue == RowEpilogue::qkv ? C : call.out_stride;
  store_numbers(call.out + r * stride + column, inputs.residual + s);
}

// Stores V neighbouring logits of row r, as far as their columns exist.
template <int V, class T, class TO, class KV>
__device__ __forceinline__ void finish_logits(const InvariantGemmCall<T, TO, KV>& call,
                                              std::int64_t r, std::int64_t column,
                                              const Floats<V>& s) {
  for (int v = 0; v < V; ++v) {
    if (column + v < call.N) call.out[r * call.out_stride + column + v] = from_float<TO>(s[v]);
  }
}

}  // namespace llmc::row_kernels
