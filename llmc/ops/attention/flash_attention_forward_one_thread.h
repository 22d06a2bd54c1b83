// Flash attention, forward, in one thread per block (device/block_threads.h): a block processes
// the queries of a tile of one head (one_thread_forward.h), over tiles of keys in ascending order.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/one_thread_forward.h"
#include "llmc/ops/dropout.h"

namespace llmc {

// Writes for each of kKeys keys from k0 on the last query, counted from q0, whose document has it.
template <int kKeys>
__device__ inline void last_columns(int (&last)[kKeys], const Visibility& visibility, int q0,
                                    int num_queries, int k0) {
  int query = 0;
  for (int key = 0; key < kKeys; ++key) {
    while (query < num_queries && visibility.first_key(q0 + query) <= k0 + key) ++query;
    last[key] = query - 1;
  }
}

// Dropout of the weights of `count` keys from k0 on and of a pass of queries from q0 + column on.
// Dropped ones become zero, the others do not change.
template <class Tile>
__device__ void drop_weights(const Tile& scores, const DropoutMask& mask, int q0, int column,
                             int k0, int count, int head) {
  for (int q = column; q < column + kPassColumns; ++q) {
    for (int key = 0; key < count; key += 4) {
      const PhiloxBits bits = mask.bits(q0 + q, (k0 + key) / 4, head);
      for (int i = 0; i < 4; ++i) {
        if (!mask.keeps(bits.words[i])) scores.row(key + i)[q] = 0;
      }
    }
  }
}

// Grid (query tiles, NH, B).
template <class T, int kHeadTile, bool kDropout>
__global__ void flash_attention_forward_one_thread_kernel(T* out, float* lse, const T* qkv,
                                                          const std::int32_t* doc_start,
                                                          AttentionShape shape, float scale,
                                                          Dropout dropout) {
  using Queries = OneThreadQueries<WordElement<T>, kHeadTile>;
  constexpr int kQueries = Queries::kQueries, kKeys = Queries::kKeys;
  const std::int64_t b = block_z(), h = block_y();
  const int T_ = static_cast<int>(shape.T);
  const int HS = static_cast<int>(shape.HS);
  const int q0 = static_cast<int>(grid_x() - 1 - block_x()) * kQueries;  // most keys first
  const int num_queries = q0 + kQueries < T_ ? kQueries : T_ - q0;
  const Visibility visibility{doc_start == nullptr ? nullptr : doc_start + b * shape.T, T_};

  SharedMemory shared;
  Queries queries(shared, scale * kLog2E, HS);
  const std::int64_t stride = shape.qkv_stride();
  const auto rows = [&](std::int64_t first, std::int64_t part) {
    const T* const data = qkv + shape.qkv_offset(b, first, h) + part * shape.C();
    return SourceRows<T>{data, stride, T_ - static_cast<int>(first), HS};
  };
  queries.load_queries(rows(q0, 0));
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(b);

  const int first_tile = visibility.first_key(q0) / kKeys;
  for (int k0 = first_tile * kKeys; k0 < q0 + num_queries; k0 += kKeys) {
    load_word_rows<WordElement<T>>(queries.keys, rows(k0, 1));
    load_word_steps<WordElement<T>>(queries.values, rows(k0, 2));
    int last[kKeys];
    if (doc_start != nullptr) last_columns(last, visibility, q0, num_queries, k0);
    const SeenKeys seen{q0, k0, doc_start != nullptr ? last : nullptr};
    queries.template add_keys<kDropout>(
        seen, num_queries, [&](const auto& scores, int column, int count) {
          drop_weights(scores, mask, q0, column, k0, count, static_cast<int>(h));
        });
  }

  queries.divide();
  for (int q = 0; q < num_queries; ++q) {
    lse[(b * shape.NH + h) * shape.T + q0 + q] = queries.log_sum_exp(q);
  }
  store_sums(out + shape.out_offset(b, q0, h), shape.C(), num_queries, HS, queries.out,
             kDropout ? mask.scale : 1.0f);
}

template <class T, bool kDropout>
void launch_flash_forward_one_thread(T* out, float* lse, const T* qkv,
                                     const std::int32_t* doc_start, const AttentionShape& shape,
                                     float scale, const Dropout& dropout, Stream& stream) {
  dispatch_fma_head_tile(shape.HS, [&]<int kHeadTile>() {
    using Tiling = OneThreadTiling<WordElement<T>, kHeadTile>;
    launch(flash_attention_forward_one_thread_kernel<T, kHeadTile, kDropout>,
           Grid{ceil_div(shape.T, Tiling::kQueries), shape.NH, shape.B}, kFmaThreads,
           Tiling::kSharedBytes, stream, out, lse, qkv, doc_start, shape, scale, dropout);
  });
}

}  // namespace llmc
