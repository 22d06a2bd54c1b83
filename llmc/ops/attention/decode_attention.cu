#include <cstdint>
#include <type_traits>

#include "llmc/device/atomics.h"
#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/decode_attention_part.h"
#include "llmc/ops/cache_rows.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

// 2^x, with the accuracy that results stored in T need. F is float or Floats<N>.
template <class T, class F>
__device__ __forceinline__ F decode_exp2(const F& x) {
  if constexpr (std::is_same_v<T, float>) {
    return accurate_exp2(x);
  } else {
    return fast_exp2(x);
  }
}

// Writes scores[key] = q . key * scale_log2 of the keys below count.
template <class Part, class T, class KV>
__device__ __forceinline__ void decode_scores(float* scores, const T* q, const KV* keys,
                                              std::int64_t stride, int count, int HS,
                                              float scale_log2) {
  constexpr int N = Part::N;
  Floats<N> query;
  if (Part::column() < HS) query = load_floats<N>(q + Part::column());
  for (int first = 0; first * Part::kGroups < count; first += Part::kBatch) {
    Part batch;
    batch.load(keys, stride, first, count, HS);
    for (int j = 0; j < Part::kBatch; ++j) {
      float score = sum_of(query * to_floats(batch.v[j]));
      for (int mask = 1; mask < Part::kLanes; mask *= 2) score += shuffle_xor(score, mask);
      const int key = Part::key(first + j);
      if (Part::column() == 0 && key < count) scores[key] = score * scale_log2;
    }
  }
}

// The same by one thread; `query` (HS) is its memory.
template <class T, class KV>
__device__ __forceinline__ void decode_scores_alone(float* scores, float* query, const T* q,
                                                    const KV* keys, std::int64_t stride, int count,
                                                    int HS, float scale_log2) {
  constexpr int N = kRowVector<KV>, kAhead = 8;
  for (int c = 0; c < HS; c += N) store_floats(query + c, load_floats<N>(q + c));
  for (int key = 0; key < count; ++key) {
    Floats<N> products;
    for (int c = 0; c < HS; c += N) {
      if (key + kAhead < count) prefetch_line(keys + (key + kAhead) * stride + c);
      products += load_floats<N>(query + c) * load_floats<N>(keys + key * stride + c);
    }
    scores[key] = sum_of(products) * scale_log2;
  }
}

struct DecodeSoftmax {
  float max, weight;  // the greatest score, and the sum of 2^(score - max)
};

// Replaces the scores of the keys below count by 2^(score - max).
template <class T>
__device__ __forceinline__ DecodeSoftmax decode_softmax(float* scores, int count, float* scratch) {
  constexpr int W = kDecodeSoftmaxWidth;
  Floats<W> maxima(kMinusInfinity), weights;
  for (int key = thread_index() * W; key < count; key += kDecodeThreads * W) {
    const auto own = keep_range(load_floats<W>(scores + key), 0, count - 1 - key, kMinusInfinity);
    maxima = max_elements(maxima, own);
  }
  const float max = block_max(max_of(maxima), scratch);
  for (int key = thread_index() * W; key < count; key += kDecodeThreads * W) {
    const auto own = keep_range(load_floats<W>(scores + key), 0, count - 1 - key, kMinusInfinity);
    const Floats<W> weight = decode_exp2<T>(own - Floats<W>(max));
    store_floats(scores + key, weight);
    weights += weight;
  }
  return {max, block_sum(sum_of(weights), scratch)};
}

// Writes to warp_values (kDecodeWarps, kHeadTile) each warp's sum of weight * value. `batch` is
// loaded with the first rows.
template <int kHeadTile, class Part, class KV>
__device__ __forceinline__ void decode_values(float* warp_values, Part& batch, const float* weights,
                                              const KV* values, std::int64_t stride, int count,
                                              int HS) {
  constexpr int N = Part::N;
  Floats<N> sums;
  for (int first = 0; first * Part::kGroups < count; first += Part::kBatch) {
    if (first > 0) batch.load(values, stride, first, count, HS);
    for (int j = 0; j < Part::kBatch; ++j) {
      const int key = Part::key(first + j);
      sums += (key < count ? weights[key] : 0.0f) * to_floats(batch.v[j]);
    }
  }
  Vec<float, N> sum;
  for (int k = 0; k < N; ++k) {
    sum[k] = sums[k];
    for (int mask = Part::kLanes; mask < 32; mask *= 2) sum[k] += shuffle_xor(sum[k], mask);
  }
  if (lane() < Part::kLanes) {
    store_floats(warp_values + warp_index() * kHeadTile + Part::column(), to_floats(sum));
  }
}

// The same by one thread. It adds a column of many keys before the next one, because loads of
// different keys miss the caches independently.
template <class KV>
__device__ __forceinline__ void decode_values_alone(float* sums, const float* weights,
                                                    const KV* values, std::int64_t stride,
                                                    int count, int HS) {
  constexpr int N = kRowVector<KV>, kKeys = 32;
  for (int c = 0; c < HS; c += N) store_floats(sums + c, Floats<N>());
  for (int first = 0; first < count; first += kKeys) {
    const int end = first + kKeys < count ? first + kKeys : count;
    for (int c = 0; c < HS; c += N) {
      Floats<N> sum = load_floats<N>(sums + c);
      for (int key = first; key < end; ++key) {
        if (key + kKeys < count) prefetch_line(values + (key + kKeys) * stride + c);
        sum += weights[key] * load_floats<N>(values + key * stride + c);
      }
      store_floats(sums + c, sum);
    }
  }
}

// Writes to warp_values (kDecodeWarps, kHeadTile) the warps' sums of weight * value over `count`
// keys, and returns the greatest score and the sum of weights. `scores` (kDecodeBlockKeys) is
// shared memory.
template <class T, class KV, int kHeadTile>
__device__ __forceinline__ DecodeSoftmax attend_to_block(float* warp_values, float* scores,
                                                         float* block_scratch, const T* q,
                                                         const KV* keys, const KV* values,
                                                         std::int64_t stride, int count, int HS,
                                                         float scale_log2,
                                                         const DecodeScales<KV>& scales) {
  if constexpr (kOneThreadBlocks) {
    decode_scores_alone(scores, warp_values, q, keys, stride, count, HS, scale_log2);
    scales.multiply_by_keys(scores);
    const DecodeSoftmax softmax = decode_softmax<T>(scores, count, block_scratch);
    scales.multiply_by_values(scores);
    decode_values_alone(warp_values, scores, values, stride, count, HS);
    return softmax;
  } else {
    using Part = DecodePart<KV, kHeadTile>;
    Part first_values;  // in flight while the scores are computed
    first_values.load(values, stride, 0, count, HS);
    decode_scores<Part>(scores, q, keys, stride, count, HS, scale_log2);
    block_barrier();
    scales.multiply_by_keys(scores);
    const DecodeSoftmax softmax = decode_softmax<T>(scores, count, block_scratch);
    scales.multiply_by_values(scores);
    block_barrier();
    decode_values<kHeadTile>(warp_values, first_values, scores, values, stride, count, HS);
    block_barrier();
    return softmax;
  }
}

// A block's result in scratch memory: HS sums of values, the greatest score, the sum of weights.
// Its size is a multiple of 4 floats.
__host__ __device__ constexpr std::int64_t decode_partial_floats(std::int64_t HS) {
  return HS + 4;
}

// Writes out (HS) from the results of all blocks of a head.
template <class T>
__device__ __forceinline__ void merge_decode_partials(T* out, const float* partials, int blocks,
                                                      int HS) {
  constexpr int W = kDecodeOutWidth;
  const std::int64_t size = decode_partial_floats(HS);
  float max = kMinusInfinity;
  for (int i = 0; i < blocks; ++i) max = std::fmax(max, partials[i * size + HS]);
  for (int c = thread_index() * W; c < HS; c += kDecodeThreads * W) {
    float weight = 0.0f;
    Floats<W> value;
    for (int i = 0; i < blocks; ++i) {
      const float* partial = partials + i * size;
      const float factor = decode_exp2<T>(partial[HS] - max);
      weight += factor * partial[HS + 1];
      value += factor * load_floats<W>(partial + c);
    }
    store_floats(out + c, value / Floats<W>(weight));
  }
}

// Grid (NH, blocks of keys, B).
template <class T, class KV, int kHeadTile>
__global__ __launch_bounds__(kDecodeThreads, 2) void decode_attention_kernel(
    T* out, const T* q, const KV* keys, const KV* values, const float* key_scales,
    const float* value_scales, const std::int32_t* position, float* scratch, std::int32_t* counters,
    std::int64_t T_max, std::int64_t C, int HS, float scale_log2) {
  constexpr int W = kDecodeOutWidth;
  SharedMemory shared;
  float* scores = shared.take<float>(kDecodeBlockKeys);
  float* warp_values = shared.take<float>(kDecodeWarps * kHeadTile);
  float* block_scratch = shared.take<float>(kBlockScratch);

  wait_for_previous_launch();
  allow_next_launch();
  const std::int64_t b = block_z(), row = b * C + block_x() * HS;
  const int total = position[b] + 1;  // a token sees itself
  const int first_key = static_cast<int>(block_y()) * kDecodeBlockKeys;
  if (first_key >= total) return;
  const int count = total - first_key < kDecodeBlockKeys ? total - first_key : kDecodeBlockKeys;
  const std::int64_t offset = (b * T_max + first_key) * C + block_x() * HS;
  const DecodeScales<KV> scales(key_scales, value_scales,
                                (b * T_max + first_key) * grid_x() + block_x(), grid_x(), count);

  const DecodeSoftmax softmax =
      attend_to_block<T, KV, kHeadTile>(warp_values, scores, block_scratch, q + row, keys + offset,
                                        values + offset, C, count, HS, scale_log2, scales);

  // One block needs no merge. Its bits would be the same: the factor would be 1.
  const int blocks = (total + kDecodeBlockKeys - 1) / kDecodeBlockKeys;
  const std::int64_t head = b * grid_x() + block_x(), size = decode_partial_floats(HS);
  float* partials = scratch + head * grid_y() * size;
  float* partial = partials + block_y() * size;
  for (int c = thread_index() * W; c < HS; c += kDecodeThreads * W) {
    Floats<W> value;
    for (int w = 0; w < kDecodeWarps; ++w) value += load_floats<W>(warp_values + w * kHeadTile + c);
    if (blocks == 1) {
      store_floats(out + row + c, value / Floats<W>(softmax.weight));
    } else {
      store_floats(partial + c, value);
    }
  }
  if (blocks == 1) return;
  if (thread_index() == 0) {
    partial[HS] = softmax.max;
    partial[HS + 1] = softmax.weight;
  }
  block_barrier();  // the block's results are written
  const bool is_last =
      block_any(thread_index() == 0 && count_arrival(counters + head) == blocks - 1);
  if (!is_last) return;
  if (thread_index() == 0) counters[head] = 0;
  merge_decode_partials<T>(out + row, partials, blocks, HS);
}

// Calls f.template operator()<kHeadTile>() with the width of the tiles for a head. It only matters
// where several threads share a head.
template <class F>
void dispatch_decode_head_tile(std::int64_t HS, F&& f) {
  if constexpr (kOneThreadBlocks) {
    f.template operator()<static_cast<int>(kMaxHeadSize)>();
  } else {
    dispatch_head_tile(HS, f);
  }
}

std::int64_t decode_attention_scratch(std::int64_t B, std::int64_t T_max, std::int64_t NH,
                                      std::int64_t HS) {
  return B * NH * ceil_div(T_max, kDecodeBlockKeys) * decode_partial_floats(HS);
}

std::int64_t decode_attention_counters(std::int64_t B, std::int64_t NH) {
  return B * NH;
}

template <class T, class KV>
void decode_attention(Tensor<T, 2> out, In<T, 2> q, InCache<KV> keys, InCache<KV> values,
                      Tensor<const std::int32_t, 1> position, Tensor<float, 1> scratch,
                      Tensor<std::int32_t, 1> counters, std::int64_t NH, Stream& stream,
                      std::optional<float> scale) {
  static_assert(kIsCacheOf<T, KV>);
  const std::int64_t B = out.shape[0], T_max = keys.numbers.shape[1];
  const AttentionShape shape =
      check_attention("out", make_tensor(out.data, B, 1, out.shape[1]), NH);
  const std::int64_t C = shape.C(), HS = shape.HS;
  check_shape("q", q, {B, C});
  check_cache_rows("keys", keys, B, T_max, C, NH);
  check_cache_rows("values", values, B, T_max, C, NH);
  check_shape("position", position, {B});
  check_shape("counters", counters, {decode_attention_counters(B, NH)});
  check_alignment("q", q.data);
  require_scratch("decode_attention", scratch, decode_attention_scratch(B, T_max, NH, HS));
  check_alignment("scratch", scratch.data);
  const std::int64_t blocks = ceil_div(T_max, kDecodeBlockKeys);
  require(blocks <= 65535,
          "decode_attention: the cache has more than 2^24 - 256 rows per sequence");
  dispatch_decode_head_tile(HS, [&]<int kHeadTile>() {
    constexpr std::size_t kBytes = SharedLayout()
                                       .add<float>(kDecodeBlockKeys)
                                       .template add<float>(kDecodeWarps * kHeadTile)
                                       .template add<float>(kBlockScratch)
                                       .bytes();
    launch_overlapped(decode_attention_kernel<T, KV, kHeadTile>, Grid{NH, blocks, B},
                      kDecodeThreads, kBytes, stream, out.data, q.data, keys.numbers.data,
                      values.numbers.data, keys.scales.data, values.scales.data, position.data,
                      scratch.data, counters.data, T_max, C, static_cast<int>(HS),
                      attention_scale(shape, scale) * kLog2E);
  });
}

LLMC_INSTANTIATE_CACHES(decode_attention)

}  // namespace llmc
