// Decode attention: one new query per sequence over the keys and values of its cache.
//
// A block processes one head of one sequence. Its warps process tiles of 32 keys in turn, each with
// its own running softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018). Each lane computes the score of one key; then the lanes are spread over the head's columns
// and sum the values. The warps' sums are merged in warp order. The keys of a warp depend only on
// the position, so a sequence has the same bits whatever else is in the batch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"

namespace llmc {

inline constexpr int kCachedWarps = 8;
inline constexpr int kCachedThreads = kCachedWarps * static_cast<int>(kWarp);

// 2^x, with the accuracy that results stored in T need.
template <class T>
__device__ __forceinline__ float cached_exp2(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return std::exp2(x);
  } else {
    return fast_exp2(x);
  }
}

// q . key over HS numbers; q is in shared memory. Four independent sums, because each addition in a
// single chain would wait for the previous one.
template <class T>
__device__ __forceinline__ float cached_score(const float* q, const T* key, int HS) {
  constexpr int N = kVecSize<T>;
  float sums[4] = {};
  for (int c = 0; c < HS; c += N) {
    const Vec<T, N> k = load_vec<N>(key + c);
    for (int i = 0; i < N; ++i) sums[i % 4] += q[c + i] * to_float(k[i]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Running sums of a warp. The value row (HS) is spread over its lanes, four columns each.
struct CachedSums {
  float max = kMinusInfinity;  // greatest score, in units of log2
  float weight = 0.0f;         // sum of 2^(score - max)
  float value[4] = {};         // sum of 2^(score - max) * value
};

// Adds `count` keys, at most 32, that are `stride` elements apart. `weights` (32) is the warp's own
// shared memory.
template <class T>
__device__ __forceinline__ void add_cached_keys(CachedSums& sums, float* weights, const float* q,
                                                const T* keys, const T* values, int count,
                                                std::int64_t stride, int HS, float scale_log2) {
  const bool has_key = lane() < count;
  const float score =
      has_key ? cached_score(q, keys + lane() * stride, HS) * scale_log2 : kMinusInfinity;
  const float max = std::fmax(sums.max, warp_max(score));
  const float correction = cached_exp2<T>(sums.max - max);
  const float weight = cached_exp2<T>(score - max);
  weights[lane()] = weight;
  sums.weight = sums.weight * correction + warp_sum(weight);
  sums.max = max;
  for (int i = 0; i < 4; ++i) sums.value[i] *= correction;
  warp_barrier();  // all weights are written
  const int column = lane() * 4;
  if (column < HS) {
    for (int j = 0; j < count; ++j) {
      const Vec<T, 4> v = load_vec<4>(values + j * stride + column);
      for (int i = 0; i < 4; ++i) sums.value[i] += weights[j] * to_float(v[i]);
    }
  }
  warp_barrier();  // all weights have been read
}

// Grid (NH, B). At small batches there is no second block for a multiprocessor, and a compiler that
// saves registers for one spills them.
template <class T>
__global__ __launch_bounds__(kCachedThreads, 1) void cached_attention_kernel(
    T* out, const T* qkv, const T* keys, const T* values, const std::int32_t* position,
    std::int64_t T_max, std::int64_t C, int HS, float scale) {
  SharedMemory shared;
  float* q = shared.take<float>(kMaxHeadSize);
  float* weights = shared.take<float>(kCachedThreads);
  float* warp_maxima = shared.take<float>(kCachedWarps);
  float* warp_weights = shared.take<float>(kCachedWarps);
  float* warp_values = shared.take<float>(kCachedWarps * kMaxHeadSize);

  const std::int64_t b = block_y();
  const std::int64_t head = block_x() * HS;
  const std::int64_t first_offset = b * T_max * C + head;  // the head's first element in the cache
  const int count = position[b] + 1;                       // a token sees itself
  for (int c = thread_index(); c < HS; c += block_size()) {
    q[c] = to_float(qkv[b * 3 * C + head + c]);
  }
  block_barrier();

  constexpr int kWarpKeys = static_cast<int>(kWarp);
  CachedSums sums;
  for (int key = warp_index() * kWarpKeys; key < count; key += kCachedThreads) {
    const std::int64_t offset = first_offset + key * C;
    const int key_count = count - key < kWarpKeys ? count - key : kWarpKeys;
    add_cached_keys(sums, weights + warp_index() * kWarpKeys, q, keys + offset, values + offset,
                    key_count, C, HS, scale * kLog2E);
  }

  if (lane() == 0) {
    warp_maxima[warp_index()] = sums.max;
    warp_weights[warp_index()] = sums.weight;
  }
  for (int i = 0; i < 4; ++i) {
    warp_values[warp_index() * kMaxHeadSize + lane() * 4 + i] = sums.value[i];
  }
  block_barrier();
  // Warp 0 has seen at least one key, so the maximum is finite; a warp that saw none adds nothing.
  float max = kMinusInfinity;
  for (int w = 0; w < kCachedWarps; ++w) max = std::fmax(max, warp_maxima[w]);
  for (int c = thread_index(); c < HS; c += block_size()) {
    float weight = 0.0f, value = 0.0f;
    for (int w = 0; w < kCachedWarps; ++w) {
      const float factor = cached_exp2<T>(warp_maxima[w] - max);
      weight += factor * warp_weights[w];
      value += factor * warp_values[w * kMaxHeadSize + c];
    }
    out[b * C + head + c] = from_float<T>(value / weight);
  }
}

// Writes out (B, 1, C), C = NH * HS: the attention of the token at position[b] of sequence b, whose
// q is in qkv (B, 1, 3C), over rows 0 .. position[b] of keys and values (B, T_max, C). The token's
// own k and v are already in the cache (store_keys_values). position (B) is in device memory, and
// the caller guarantees that it is below T_max. Other rows of the cache are not read. Scores and
// sums are fp32. Bitwise repeatable. Throws an Error if the head size is not a multiple of 8 from 8
// to 128, if shapes do not match, or if out, keys or values does not start at a multiple of 16
// bytes.
template <class T>
void cached_attention(Tensor<T, 3> out, In<T, 3> qkv, In<T, 3> keys, In<T, 3> values,
                      Tensor<const std::int32_t, 1> position, std::int64_t NH, Stream& stream) {
  const AttentionShape shape = check_attention("out", out, NH);
  const std::int64_t B = shape.B, C = shape.C(), T_max = keys.shape[1];
  check_shape("out", out, {B, 1, C});
  check_shape("qkv", qkv, {B, 1, 3 * C});
  check_shape("keys", keys, {B, T_max, C});
  check_shape("values", values, {B, T_max, C});
  check_shape("position", position, {B});
  check_alignment("keys", keys.data);
  check_alignment("values", values.data);
  require(T_max <= kMaxAttentionTime,
          "cached_attention: the cache has more than 2^24 rows per sequence");
  constexpr std::size_t kBytes = SharedLayout()
                                     .add<float>(kMaxHeadSize)
                                     .add<float>(kCachedThreads)
                                     .add<float>(kCachedWarps)
                                     .add<float>(kCachedWarps)
                                     .add<float>(kCachedWarps * kMaxHeadSize)
                                     .bytes();
  launch(cached_attention_kernel<T>, Grid{NH, B, 1}, kCachedThreads, kBytes, stream, out.data,
         qkv.data, keys.data, values.data, position.data, T_max, C, static_cast<int>(shape.HS),
         attention_scale(shape.HS));
}

}  // namespace llmc
