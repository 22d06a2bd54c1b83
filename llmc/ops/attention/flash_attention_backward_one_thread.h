// Flash attention, backward, in one thread per block (device/block_threads.h). Notation:
// flash_attention_backward.h.
//
// A block processes a head: five products for each pair of tiles. For one tile of keys after the
// other it iterates over the tiles of queries that see it, sums up dK and dV of the keys, and adds
// to dQ of all queries in memory of the block. Passes (one_thread_tiles.h) of P and dS above the
// diagonal are neither computed nor read.
//
// If that takes less time, as with more threads than heads, heads are divided: a block computes dK
// and dV of a tile of keys, or dQ of a tile of queries. These are seven products, whose sums have
// the same order and bits.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/thread_memory.h"
#include "llmc/device/workers.h"
#include "llmc/ops/attention/attention_backward_head.h"
#include "llmc/ops/attention/attention_dropout.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/one_thread_tiles.h"

namespace llmc {

template <class E, int kHeadTile>
struct OneThreadBackwardTiling {
  static constexpr int P = kWordNumbers<E>;
  static constexpr int kKeys = kHeadTile > 64 ? 32 : 64;
  static constexpr int kQueries = kHeadTile > 64 ? 32 : 32 * P;
  static_assert(kRowTermPadding % kQueries == 0 && kKeys % kQueries == 0);
  static_assert(kKeys % kPassColumns == 0 && kQueries % kPassRows == 0);

  using KeyColumns = WordTile<kHeadTile / P, kKeys>;     // K^T, and V^T
  using KeySteps = WordTile<kKeys / P, kHeadTile>;       // K, for dS K
  using QueryRows = WordTile<kQueries, kHeadTile / P>;   // Q, and dO
  using QuerySteps = WordTile<kQueries / P, kHeadTile>;  // Q and dO, for dS^T Q and P^T dO
  using ScoreSteps = WordTile<kQueries / P, kKeys>;      // P, and dS, for P^T dO and dS^T Q
  using ScoreRows = WordTile<kQueries, kKeys / P>;       // dS, for dS K
  using KeySums = SumTile<kKeys, kHeadTile>;
  // With one number per word, tiles of steps are tiles of rows.
  static constexpr bool kSameRows = P == 1;
  static constexpr SharedLayout kCommon = SharedLayout()
                                              .add<Word>(KeyColumns::kElements)
                                              .template add<Word>(KeyColumns::kElements)
                                              .template add<Word>(KeySteps::kElements)
                                              .template add<Word>(QueryRows::kElements)
                                              .template add<Word>(QueryRows::kElements)
                                              .template add<Word>(ScoreSteps::kElements)
                                              .template add<Word>(ScoreSteps::kElements);
  static constexpr SharedLayout kLayout = kSameRows ? kCommon
                                                    : SharedLayout(kCommon)
                                                          .template add<Word>(QuerySteps::kElements)
                                                          .template add<Word>(QuerySteps::kElements)
                                                          .template add<Word>(ScoreRows::kElements);
  static constexpr std::size_t kSharedBytes = kLayout.bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// The results of a block: those of a head, of a tile of its keys, or of a tile of its queries.
enum class BackwardPart { head, keys, queries };

// The backward pass of a head or of a part. `kSameRows`: a word has one number, so tiles of steps
// are tiles of rows.
template <class T, int kHeadTile, bool kDropout>
class OneThreadBackward {
 public:
  using E = WordElement<T>;
  using Tiling = OneThreadBackwardTiling<E, kHeadTile>;
  static constexpr int kKeys = Tiling::kKeys, kQueries = Tiling::kQueries, P = Tiling::P;
  static constexpr int W = kFmaWidth;
  static constexpr bool kSameRows = Tiling::kSameRows;

  // d_head: the gradient of the head's q in the first row.
  __device__ OneThreadBackward(SharedMemory& shared, T* d_head, const BackwardHead<T>& head,
                               const AttentionShape& shape, float scale, const DropoutMask& mask,
                               int head_index)
      : d_head_(d_head),
        head_(head),
        C_(shape.C()),
        stride_(shape.qkv_stride()),
        T_(static_cast<int>(shape.T)),
        HS_(static_cast<int>(shape.HS)),
        scale_(scale),
        scale_log2_(scale * kLog2E),
        mask_(mask),
        head_index_(head_index),
        keys_{shared.take<Word>(Tiling::KeyColumns::kElements)},
        values_{shared.take<Word>(Tiling::KeyColumns::kElements)},
        key_steps_{shared.take<Word>(Tiling::KeySteps::kElements)},
        queries_{shared.take<Word>(Tiling::QueryRows::kElements)},
        d_outs_{shared.take<Word>(Tiling::QueryRows::kElements)},
        p_steps_{shared.take<Word>(Tiling::ScoreSteps::kElements)},
        ds_steps_{shared.take<Word>(Tiling::ScoreSteps::kElements)},
        query_steps_{steps_of(shared, queries_)},
        d_out_steps_{steps_of(shared, d_outs_)},
        ds_rows_{kSameRows ? ds_steps_.data : shared.take<Word>(Tiling::ScoreRows::kElements)} {}

  __device__ void differentiate_head() {
    clear_queries(0, T_);
    for (int k0 = 0; k0 < T_; k0 += kKeys) differentiate_keys<true>(k0);
    store_queries();
  }

  // dK and dV of the keys from k0 on, and their part of dQ.
  template <bool kAddsToQueries>
  __device__ void differentiate_keys(int k0) {
    typename Tiling::KeySums dk, dv;
    load_keys<kAddsToQueries>(k0);
    for (int q0 = k0; q0 < T_ && is_seen(q0, k0); q0 += kQueries) {
      load_queries(q0);
      compute_scores(q0, k0);
      add_to_keys(dv, p_steps_, d_out_steps_, q0, k0);
      add_to_keys(dk, ds_steps_, query_steps_, q0, k0);
      if constexpr (kAddsToQueries) add_to_queries(q0, k0);
    }
    T* const keys = d_head_ + k0 * stride_ + C_;
    const int rows = T_ - k0 < kKeys ? T_ - k0 : kKeys;
    store_sums(keys, stride_, rows, HS_, dk, scale_);
    store_sums(keys + C_, stride_, rows, HS_, dv, 1.0f);
  }

  // dQ of the queries from q0 on.
  __device__ void differentiate_queries(int q0) {
    clear_queries(q0, q0 + kQueries);
    load_queries(q0);
    for (int k0 = 0; k0 <= q0; k0 += kKeys) {
      if (!is_seen(q0, k0)) continue;
      load_keys<true>(k0);
      compute_scores(q0, k0);
      add_to_queries(q0, k0);
    }
    store_queries();
  }

 private:
  __device__ static Word* steps_of(SharedMemory& shared, const typename Tiling::QueryRows& rows) {
    return kSameRows ? rows.data : shared.take<Word>(Tiling::QuerySteps::kElements);
  }
  __device__ SourceRows<T> rows(const T* data, std::int64_t stride, int first) const {
    return {data + first * stride, stride, T_ - first, HS_};
  }

  // Whether a tile of queries sees any of a tile of keys. Queries before k0 do not, and none of
  // those after a query that does not: its document begins after the last key.
  __device__ bool is_seen(int q0, int k0) const {
    return head_.visibility.first_key(q0) <= (k0 + kKeys < T_ ? k0 + kKeys : T_) - 1;
  }

  // Sums of dQ, kHeadTile per query, for whole tiles from `first` on.
  __device__ void clear_queries(int first, int end) {
    first_query_ = first;
    end_query_ = end < T_ ? end : T_;
    const std::int64_t count = round_up(end_query_ - first, kQueries) * kHeadTile;
    dq_ = thread_memory<float>(count);
    for (std::int64_t i = 0; i < count; i += W) store_floats(dq_ + i, Floats<W>());
  }
  __device__ float* sums_of_query(int query) const {
    return dq_ + static_cast<std::int64_t>(query - first_query_) * kHeadTile;
  }
  __device__ void store_queries() {
    for (int query = first_query_; query < end_query_; ++query) {
      const float* const sums = sums_of_query(query);
      for (int c = 0; c < HS_; c += 8) {
        store_floats(d_head_ + query * stride_ + c, scale_ * load_floats<8>(sums + c));
      }
    }
  }

  template <bool kAddsToQueries>
  __device__ void load_keys(int k0) {
    load_word_columns<E>(keys_, rows(head_.qkv + C_, stride_, k0));
    load_word_columns<E>(values_, rows(head_.qkv + 2 * C_, stride_, k0));
    if constexpr (kAddsToQueries) {
      load_word_steps<E>(key_steps_, rows(head_.qkv + C_, stride_, k0));
    }
  }

  __device__ void load_queries(int q0) {
    load_word_rows<E>(queries_, rows(head_.qkv, stride_, q0));
    load_word_rows<E>(d_outs_, rows(head_.d_out, C_, q0));
    if constexpr (!kSameRows) {
      load_word_steps<E>(query_steps_, rows(head_.qkv, stride_, q0));
      load_word_steps<E>(d_out_steps_, rows(head_.d_out, C_, q0));
    }
  }

  // P and dS of the tile.
  __device__ LLMC_INLINE_ON_GPU void compute_scores(int q0, int k0) {
    const bool needs_mask =
        !head_.visibility.all_visible(q0, q0 + kQueries - 1, k0, k0 + kKeys - 1);
    for (int key = 0; key < kKeys; key += kPassColumns) {
      for (int row = 0; row < kQueries; row += kPassRows) {
        if (k0 + key > q0 + row + kPassRows - 1) continue;  // above the diagonal
        PassSums<kPassGroups> p, ds;
        add_steps<E, LeftOrder::rows, kPassGroups>(p, queries_.row(row), queries_.kColumns,
                                                   keys_.row(0) + key, kKeys, HS_ / P);
        add_steps<E, LeftOrder::rows, kPassGroups>(ds, d_outs_.row(row), d_outs_.kColumns,
                                                   values_.row(0) + key, kKeys, HS_ / P);
        for (int r = 0; r < kPassRows; ++r)
          differentiate(p[r], ds[r], q0 + row + r, k0 + key, needs_mask);
        store_scores(p, ds, row, key);
      }
    }
  }

  // Replaces the scores and dP of a query by P and dS = P o (dP - D). Rows beyond T have an
  // infinite log-sum-exp, so P = 0. With dropout, dP is that of the kept probabilities, and the
  // result for P is the terms of dV: kept P times the scale.
  __device__ __forceinline__ void differentiate(Floats<W> (&p)[kPassGroups],
                                                Floats<W> (&ds)[kPassGroups], int query, int key,
                                                bool needs_mask) {
    const int min_key = needs_mask ? head_.visibility.first_key(query) : 0;
    const Floats<W> minus_lse(-head_.lse_log2[query]), dot(head_.dot[query]), scale(scale_log2_);
    for (int g = 0; g < kPassGroups; ++g) {
      const int first = key + g * W;
      Floats<W> weight = word_exp2<E>(multiply_add(p[g], scale, minus_lse));
      if (needs_mask) weight = keep_range(weight, min_key - first, query - first, 0.0f);
      if constexpr (kDropout) {
        const Floats<W> factors = dropout_factors(mask_, query, first, head_index_);
        ds[g] = weight * (factors * ds[g] - dot);
        p[g] = weight * factors;
      } else {
        ds[g] = weight * (ds[g] - dot);
        p[g] = weight;
      }
    }
  }

  __device__ __forceinline__ void store_scores(const PassSums<kPassGroups>& p,
                                               const PassSums<kPassGroups>& ds, int row, int key) {
    for (int r = 0; r < kPassRows; r += P) {
      for (int g = 0; g < kPassGroups; ++g) {
        Word* const p_step = p_steps_.row((row + r) / P) + key + g * W;
        Word* const ds_step = ds_steps_.row((row + r) / P) + key + g * W;
        if constexpr (kSameRows) {
          store_words(p_step, words_of(p[r][g]));
          store_words(ds_step, words_of(ds[r][g]));
        } else {
          store_words(p_step, paired(p[r][g], p[r + 1][g]));
          store_words(ds_step, paired(ds[r][g], ds[r + 1][g]));
        }
      }
    }
    if constexpr (!kSameRows) {
      for (int r = 0; r < kPassRows; ++r) {
        for (int g = 0; g < kPassGroups; ++g)
          store_in_order<E>(ds_rows_.row(row + r) + (key + g * W) / P, ds[r][g]);
      }
    }
  }

  // sums += scores^T right, over the queries of the tile that see a key of a pass.
  template <class Left, class Right>
  __device__ LLMC_INLINE_ON_GPU void add_to_keys(typename Tiling::KeySums& sums, const Left& scores,
                                                 const Right& right, int q0, int k0) {
    constexpr int kGroups = Tiling::KeySums::kGroups;
    const int end = q0 + kQueries - k0 < kKeys ? q0 + kQueries - k0 : kKeys;
    for_each_sum_pass(sums, 0, end, HS_, [&](PassSums<kGroups>& part, int key, int group) {
      const int first = k0 + key > q0 ? (k0 + key - q0) / P : 0;
      add_steps<E, LeftOrder::steps, kGroups>(part, scores.row(first) + key, scores.kColumns,
                                              right.row(first) + group * W, right.kColumns,
                                              kQueries / P - first);
    });
  }

  // dQ += dS K, over the keys up to the last query of a pass.
  __device__ LLMC_INLINE_ON_GPU void add_to_queries(int q0, int k0) {
    constexpr int kGroups = Tiling::KeySums::kGroups;
    for (int group = 0; group * W < HS_; group += kGroups) {
      for (int row = 0; row < kQueries; row += kPassRows) {
        const int end = q0 + row + kPassRows - k0;
        float* const dq = sums_of_query(q0 + row) + group * W;
        PassSums<kGroups> sums;
        for (int r = 0; r < kPassRows; ++r) {
          for (int g = 0; g < kGroups; ++g) sums[r][g] = load_floats<W>(dq + r * kHeadTile + g * W);
        }
        add_steps<E, LeftOrder::rows, kGroups>(sums, ds_rows_.row(row), ds_rows_.kColumns,
                                               key_steps_.row(0) + group * W, key_steps_.kColumns,
                                               (end < kKeys ? end : kKeys) / P);
        for (int r = 0; r < kPassRows; ++r) {
          for (int g = 0; g < kGroups; ++g) store_floats(dq + r * kHeadTile + g * W, sums[r][g]);
        }
      }
    }
  }

  T* d_head_;
  const BackwardHead<T>& head_;
  std::int64_t C_, stride_;
  int T_, HS_;
  float scale_, scale_log2_;
  float* dq_ = nullptr;
  int first_query_ = 0, end_query_ = 0;
  const DropoutMask& mask_;
  int head_index_;
  typename Tiling::KeyColumns keys_, values_;
  typename Tiling::KeySteps key_steps_;
  typename Tiling::QueryRows queries_, d_outs_;
  typename Tiling::ScoreSteps p_steps_, ds_steps_;
  typename Tiling::QuerySteps query_steps_, d_out_steps_;
  typename Tiling::ScoreRows ds_rows_;
};

// Grid (NH, B), and with part keys or queries the number of tiles; those with the most work first.
template <class T, int kHeadTile, bool kDropout>
__global__ void flash_attention_backward_one_thread_kernel(T* d_qkv, const T* d_out, const T* qkv,
                                                           RowTerms terms,
                                                           const std::int32_t* doc_start,
                                                           AttentionShape shape, float scale,
                                                           Dropout dropout, BackwardPart part) {
  using Backward = OneThreadBackward<T, kHeadTile, kDropout>;
  const int b = static_cast<int>(block_y()), h = static_cast<int>(block_x()),
            tile = static_cast<int>(block_z());
  const BackwardHead<T> head(d_out, qkv, terms, doc_start, shape, b, h);
  DropoutMask mask{};
  if constexpr (kDropout) mask = dropout.row_mask(b);
  SharedMemory shared;
  Backward backward(shared, d_qkv + shape.qkv_offset(b, 0, h), head, shape, scale, mask, h);
  if (part == BackwardPart::head) {
    backward.differentiate_head();
  } else if (part == BackwardPart::keys) {
    backward.template differentiate_keys<false>(tile * Backward::kKeys);
  } else {
    const int last = static_cast<int>(ceil_div(shape.T, Backward::kQueries)) - 1;
    backward.differentiate_queries((last - tile) * Backward::kQueries);
  }
}

// Whether blocks for tiles are faster than blocks for heads, which compute five of seven products.
// A head needs several tiles: those of the first keys take the longest.
inline bool divides_heads(std::int64_t heads, std::int64_t tiles, std::int64_t threads) {
  return tiles >= 4 && 7 * heads < 5 * threads * ceil_div(heads, threads);
}

template <class T, bool kDropout>
void launch_flash_backward_one_thread(T* d_qkv, const T* d_out, const T* qkv, const RowTerms& terms,
                                      const std::int32_t* doc_start, const AttentionShape& shape,
                                      float scale, const Dropout& dropout, Stream& stream) {
  dispatch_fma_head_tile(shape.HS, [&]<int kHeadTile>() {
    using Tiling = OneThreadBackwardTiling<WordElement<T>, kHeadTile>;
    const auto launch_part = [&](BackwardPart part, std::int64_t tiles) {
      launch(flash_attention_backward_one_thread_kernel<T, kHeadTile, kDropout>,
             Grid{shape.NH, shape.B, tiles}, kFmaThreads, Tiling::kSharedBytes, stream, d_qkv,
             d_out, qkv, terms, doc_start, shape, scale, dropout, part);
    };
    const std::int64_t keys = ceil_div(shape.T, Tiling::kKeys);
    if (!divides_heads(shape.B * shape.NH, keys, workers().threads())) {
      return launch_part(BackwardPart::head, 1);
    }
    launch_part(BackwardPart::keys, keys);
    launch_part(BackwardPart::queries, ceil_div(shape.T, Tiling::kQueries));
  });
}

}  // namespace llmc
