// Decode attention: one new query per sequence over the keys and values of its cache.
//
// A block processes one head of one sequence. Its warps process tiles of 32 keys in turn, each with
// its own running softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018). Each lane computes the score of one key; then the lanes are spread over the head's columns
// and sum the values. The warps' sums are merged in warp order. The keys of a warp depend only on
// the position, so a sequence has the same bits whatever else is in the batch. In the host executor
// one thread is the only warp, and its only lane (block_threads.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

inline constexpr int kCachedWarps = cooperating_threads(8);
inline constexpr int kCachedLanes = cooperating_threads(32);
inline constexpr int kCachedThreads = kCachedWarps * kCachedLanes;
inline constexpr int kCachedTile = 32;                            // keys
inline constexpr int kLaneKeys = kCachedTile / kCachedLanes;      // of a tile
inline constexpr int kLaneColumns = kMaxHeadSize / kCachedLanes;  // of a head
inline constexpr int kValueVector = kOneThreadBlocks ? 8 : 4;     // columns of one access

// 2^x, with the accuracy that results stored in T need. F is float or Floats<N>.
template <class T, class F>
__device__ __forceinline__ F cached_exp2(const F& x) {
  if constexpr (std::is_same_v<T, float>) {
    return accurate_exp2(x);
  } else {
    return fast_exp2(x);
  }
}

// q . key over HS numbers; q is in shared memory. Independent sums, because each addition in a
// single chain would wait for the previous one.
template <class T>
__device__ __forceinline__ float cached_score(const float* q, const T* key, int HS) {
  constexpr int N = kRowVector<T>;
  Floats<N> sums;
  for (int c = 0; c < HS; c += N) sums += load_floats<N>(q + c) * load_floats<N>(key + c);
  return sum_of(sums);
}

// Running sums of a warp. The value row (HS) is spread over its lanes.
struct CachedSums {
  float max = kMinusInfinity;  // greatest score, in units of log2
  float weight = 0.0f;         // sum of 2^(score - max)
  // Sum of 2^(score - max) * value.
  Floats<kValueVector> value[kLaneColumns / kValueVector];
};

// Adds `count` keys, at most kCachedTile, that are `stride` elements apart. `weights` (kCachedTile)
// is the warp's own shared memory.
template <class T>
__device__ __forceinline__ void add_cached_keys(CachedSums& sums, float* weights, const float* q,
                                                const T* keys, const T* values, int count,
                                                std::int64_t stride, int HS, float scale_log2) {
  Vec<float, kLaneKeys> scores;
  for (int i = 0; i < kLaneKeys; ++i) {
    const int key = lane() * kLaneKeys + i;
    scores[i] =
        key < count ? cached_score(q, keys + key * stride, HS) * scale_log2 : kMinusInfinity;
  }
  const Floats<kLaneKeys> own = to_floats(scores);
  const float max = std::fmax(sums.max, warp_max(max_of(own)));
  const float correction = cached_exp2<T>(sums.max - max);
  const Floats<kLaneKeys> weight = cached_exp2<T>(own - max);
  store_floats(weights + lane() * kLaneKeys, weight);
  sums.weight = sums.weight * correction + warp_sum(sum_of(weight));
  sums.max = max;
  warp_barrier();  // all weights are written
  for (int i = 0; i < kLaneColumns / kValueVector; ++i) {
    const int column = lane() * kLaneColumns + i * kValueVector;
    if (column >= HS) break;
    Floats<kValueVector> sum = correction * sums.value[i];
    for (int j = 0; j < count; ++j) {
      sum += weights[j] * load_floats<kValueVector>(values + j * stride + column);
    }
    sums.value[i] = sum;
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
  float* weights = shared.take<float>(kCachedWarps * kCachedTile);
  float* warp_maxima = shared.take<float>(kCachedWarps);
  float* warp_weights = shared.take<float>(kCachedWarps);
  float* warp_values = shared.take<float>(kCachedWarps * kMaxHeadSize);

  const std::int64_t b = block_y();
  const std::int64_t head = block_x() * HS;
  const std::int64_t first_offset = b * T_max * C + head;  // the head's first element in the cache
  const int count = position[b] + 1;                       // a token sees itself
  for (int c = thread_index(); c < HS; c += kCachedThreads) {
    q[c] = to_float(qkv[b * 3 * C + head + c]);
  }
  block_barrier();

  CachedSums sums;
  for (int key = warp_index() * kCachedTile; key < count; key += kCachedWarps * kCachedTile) {
    const std::int64_t offset = first_offset + key * C;
    const int key_count = count - key < kCachedTile ? count - key : kCachedTile;
    add_cached_keys(sums, weights + warp_index() * kCachedTile, q, keys + offset, values + offset,
                    key_count, C, HS, scale * kLog2E);
  }

  if (lane() == 0) {
    warp_maxima[warp_index()] = sums.max;
    warp_weights[warp_index()] = sums.weight;
  }
  float* lane_values = warp_values + warp_index() * kMaxHeadSize + lane() * kLaneColumns;
  for (int i = 0; i < kLaneColumns / kValueVector; ++i) {
    store_floats(lane_values + i * kValueVector, sums.value[i]);
  }
  block_barrier();
  // Warp 0 has seen at least one key, so the maximum is finite; a warp that saw none adds nothing.
  float max = kMinusInfinity;
  for (int w = 0; w < kCachedWarps; ++w) max = std::fmax(max, warp_maxima[w]);
  for (int c = thread_index(); c < HS; c += kCachedThreads) {
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
                                     .add<float>(kCachedWarps * kCachedTile)
                                     .add<float>(kCachedWarps)
                                     .add<float>(kCachedWarps)
                                     .add<float>(kCachedWarps * kMaxHeadSize)
                                     .bytes();
  launch(cached_attention_kernel<T>, Grid{NH, B, 1}, kCachedThreads, kBytes, stream, out.data,
         qkv.data, keys.data, values.data, position.data, T_max, C, static_cast<int>(shape.HS),
         attention_scale(shape.HS));
}

}  // namespace llmc
