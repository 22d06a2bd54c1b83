// Keys and values of an INT8 cache, after the products of inference: a head of a row has one scale,
// which depends on all its columns, but several blocks or pieces may compute them. So the epilogue
// writes the fp32 sums of keys and values, bias included, to memory (InvariantGemmCall::head_sums).
// On a GPU the block that completes a head quantizes it, on the host a second pass.
#pragma once

#include <cstdint>

#include "llmc/device/atomics.h"
#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/quantize.h"

namespace llmc {

inline constexpr std::int64_t kMaxQuantizedHead = 128;

// A head of a row: its sums, and the place of its codes and of their scale.
struct QuantizedHead {
  const float* sums;
  std::int8_t* codes;
  float* scale;
  int size;
};

// Head 0 .. NH - 1 are the keys of row r, NH .. 2 NH - 1 its values.
template <class T, class TO>
__host__ __device__ inline QuantizedHead head_of_row(
    const InvariantGemmCall<T, TO, std::int8_t>& call, std::int64_t r, std::int64_t head) {
  const std::int64_t C = call.C(), HS = C / call.NH, token = call.cache_token(r);
  const bool is_key = head < call.NH;
  const std::int64_t h = is_key ? head : head - call.NH;
  return {call.head_sums + r * 2 * C + head * HS,
          (is_key ? call.keys : call.values) + token * C + h * HS,
          (is_key ? call.key_scales : call.value_scales) + token * call.NH + h,
          static_cast<int>(HS)};
}

// Quantizes a head, by one thread.
__device__ inline void quantize_head(const QuantizedHead& head) {
  constexpr int N = 8;
  RangeOfVectors<N> range;
  for (int c = 0; c < head.size; c += N) range.add(load_floats<N>(head.sums + c));
  const Quantization q = symmetric_quantization(range.range());
  const CodeRounding rounding(q);
  for (int c = 0; c < head.size; c += N)
    store_vec(head.codes + c, rounding.codes(load_floats<N>(head.sums + c)));
  *head.scale = q.scale;
}

namespace row_kernels {

// Quantizes a head, by one warp.
__device__ __forceinline__ void quantize_head_by_warp(const QuantizedHead& head) {
  constexpr int N = 4;
  static_assert(32 * N >= kMaxQuantizedHead);
  const int c = lane() * N;
  Floats<N> x;
  if (c < head.size) x = load_floats<N>(head.sums + c);
  RangeOfVectors<N> own;
  own.add(x);
  const ValueRange range = own.range();
  const Quantization q = symmetric_quantization({-warp_max(-range.min), warp_max(range.max)});
  if (c < head.size) store_vec(head.codes + c, CodeRounding(q).codes(x));
  if (lane() == 0) *head.scale = q.scale;
}

// Quantizes the keys and values that are complete after the calling block has written its sums, and
// passed a barrier since: `rows` rows from first_row on, and `columns` columns from first_column
// on, both multiples of `columns`. The blocks with the same rows have the same `tile` of rows. The
// block that writes the last columns of a head quantizes it, and sets the head's counter to 0.
template <class T, class TO>
__device__ __forceinline__ void finish_heads(const InvariantGemmCall<T, TO, std::int8_t>& call,
                                             std::int64_t tile, std::int64_t first_row, int rows,
                                             int first_column, int columns) {
  const auto C = static_cast<int>(call.C()), NH = static_cast<int>(call.NH), HS = C / NH;
  const int end = first_column + columns < 3 * C ? first_column + columns : 3 * C;
  if (end <= C) return;  // only queries
  std::int32_t* const counters = call.head_counters + tile * 2 * NH;
  for (int head = first_column > C ? (first_column - C) / HS : 0; C + head * HS < end; ++head) {
    const int begin = C + head * HS;
    const int blocks = (begin + HS - 1) / columns - begin / columns + 1;
    if (blocks > 1) {
      const bool is_last =
          block_any(thread_index() == 0 && count_arrival(counters + head) == blocks - 1);
      if (!is_last) continue;
      if (thread_index() == 0) counters[head] = 0;
    }
    for (int r = warp_index(); r < rows; r += warps_per_block())
      quantize_head_by_warp(head_of_row(call, first_row + r, head));
  }
}

}  // namespace row_kernels

}  // namespace llmc
