// Attention of a tile of queries in one thread per block (device/block_threads.h), for training and
// for prompts: the algorithm of flash_attention_forward_fma.h with scores stored transposed, (keys,
// queries). A SIMD register holds the scores of one key and neighbouring queries, so the running
// softmax needs no operation across a register, and keys stay as they lie in memory.
//
// Queries are columns. Those that see no key of a tile are skipped, in passes; others multiply
// keys that they do not see by weights of 0. Both give the same bits (make_zeros_positive).
#pragma once

#include <cfloat>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/one_thread_tiles.h"

namespace llmc {

// Tiles for heads of up to kHeadTile channels whose numbers are of type E in words. They stay in
// the L2 cache of a core; what a pass reads of them in its L1 cache.
template <class E, int kHeadTile>
struct OneThreadTiling {
  static constexpr int kQueries = kHeadTile > 64 ? 32 : 64, kKeys = 64;
  static constexpr int P = kWordNumbers<E>;

  using QueryTile = WordTile<kHeadTile / P, kQueries>;
  using KeyTile = WordTile<kKeys, kHeadTile / P>;
  using ValueTile = WordTile<kKeys / P, kHeadTile>;
  using ScoreTile = WordTile<kKeys, kQueries>;       // fp32
  using WeightTile = WordTile<kKeys / P, kQueries>;  // in the place of the scores
  using Sums = SumTile<kQueries, kHeadTile>;
  static constexpr std::size_t kSharedBytes = SharedLayout()
                                                  .add<Word>(QueryTile::kElements)
                                                  .template add<Word>(KeyTile::kElements)
                                                  .template add<Word>(ValueTile::kElements)
                                                  .template add<Word>(ScoreTile::kElements)
                                                  .template add<float>(kQueries)
                                                  .template add<float>(kQueries)
                                                  .template add<float>(kQueries)
                                                  .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

// The keys of a tile, which begins at k0, that queries see, which begin at q0: all up to the
// query, and with documents only those for which the query is at most last_column[key].
struct SeenKeys {
  int q0, k0;
  const int* last_column;  // null without documents

  // The keys of the tile that a pass of queries from `column` on sees, rounded up to whole passes.
  template <int kKeys>
  __device__ __forceinline__ int count(int column) const {
    const int visible = q0 + column + kPassColumns - k0;
    return visible < kKeys ? static_cast<int>(round_up(visible, kPassRows)) : kKeys;
  }
  // Whether a query from `column` on does not see one of the keys of a pass from `key` on.
  __device__ __forceinline__ bool needs_mask(int key, int column) const {
    return last_column != nullptr || k0 + key + kPassRows - 1 > q0 + column;
  }
  // The scores of a key for the queries from `column` on, with -inf where it is not seen.
  __device__ __forceinline__ Floats<kFmaWidth> masked(const Floats<kFmaWidth>& scores, int key,
                                                      int column) const {
    const int last = last_column == nullptr ? kFmaWidth - 1 : last_column[key] - column;
    return keep_range(scores, k0 + key - q0 - column, last, kMinusInfinity);
  }
};

// A tile of queries and what it has summed up so far.
template <class E, int kHeadTile>
class OneThreadQueries {
 public:
  using Tiling = OneThreadTiling<E, kHeadTile>;
  using Sums = typename Tiling::Sums;
  static constexpr int kQueries = Tiling::kQueries, kKeys = Tiling::kKeys, P = Tiling::P;
  static constexpr int W = kFmaWidth;

  typename Tiling::KeyTile keys;      // rows of keys
  typename Tiling::ValueTile values;  // steps of values
  Sums out;

  // `scale_log2` is the factor of the scores in units of log2, above 0.
  __device__ OneThreadQueries(SharedMemory& shared, float scale_log2, int head_size)
      : keys{shared.take<Word>(Tiling::KeyTile::kElements)},
        values{shared.take<Word>(Tiling::ValueTile::kElements)},
        scale_log2_(scale_log2),
        head_size_(head_size),
        queries_{shared.take<Word>(Tiling::QueryTile::kElements)},
        scores_{shared.take<Word>(Tiling::ScoreTile::kElements)},
        max_(shared.take<float>(kQueries)),
        sum_(shared.take<float>(kQueries)),
        correction_(shared.take<float>(kQueries)) {
    for (int q = 0; q < kQueries; ++q) {
      max_[q] = kMinusInfinity;
      sum_[q] = 0.0f;
    }
  }

  template <class T>
  __device__ void load_queries(const SourceRows<T>& rows) {
    load_word_columns<E>(queries_, rows);
  }

  // Adds the keys and values that have been loaded, for the first `rows` queries. `drop(scores,
  // column, count)` may change the weights of `count` keys and a pass of queries before they
  // multiply values.
  template <bool kDropout, class Drop>
  __device__ void add_keys(const SeenKeys& seen, int rows, const Drop& drop) {
    for (int column = 0; column < rows; column += kPassColumns) {
      const int count = seen.template count<kKeys>(column);
      if (count <= 0) continue;
      Floats<W> largest[kPassGroups];
      compute_scores(largest, seen, column, count);
      for (int g = 0; g < kPassGroups; ++g) {
        weigh<kDropout>(column + g * W, count, largest[g]);
      }
      if constexpr (kDropout) {
        drop(scores_, column, count);
        for (int g = 0; g < kPassGroups; ++g) pack_weights(column + g * W, count);
      }
      add_values(column, count);
    }
  }

  // Divides by the sums of the weights.
  __device__ void divide() {
    for (int q = 0; q < kQueries; ++q) {
      const float factor = 1.0f / sum_[q];
      for (auto& x : out.v[q]) x *= factor;
    }
  }

  // The natural logarithm of the sum of the exponentials of a query's scores.
  __device__ float log_sum_exp(int q) const {
    return max_[q] * scale_log2_ * kLn2 + std::log(sum_[q]);
  }

 private:
  // The unscaled scores of `count` keys and a pass of queries, and the largest of each query.
  __device__ LLMC_INLINE_ON_GPU void compute_scores(Floats<W> (&largest)[kPassGroups],
                                                    const SeenKeys& seen, int column, int count) {
    for (int g = 0; g < kPassGroups; ++g) largest[g] = Floats<W>(kMinusInfinity);
    for (int k = 0; k < count; k += kPassRows) {
      PassSums<kPassGroups> sums;
      add_steps<E, LeftOrder::rows, kPassGroups>(sums, keys.row(k), keys.kColumns,
                                                 queries_.row(0) + column, queries_.kColumns,
                                                 head_size_ / P);
      const bool needs_mask = seen.needs_mask(k, column);
      for (int r = 0; r < kPassRows; ++r) {
        for (int g = 0; g < kPassGroups; ++g) {
          Floats<W> s = sums[r][g];
          if (needs_mask) s = seen.masked(s, k + r, column + g * W);
          largest[g] = max_elements(largest[g], s);
          store_words(scores_.row(k + r) + column + g * W, words_of(s));
        }
      }
    }
  }

  // Replaces the scores of W columns in rows 0 .. count - 1 by the weights of the running softmax.
  // `tile_max` has the largest score of each column; a column of scores that are all -inf has
  // weights of 0. With dropout they stay fp32.
  template <bool kDropout>
  __device__ LLMC_INLINE_ON_GPU void weigh(int column, int count, const Floats<W>& tile_max) {
    const Floats<W> old_max = load_floats<W>(max_ + column);
    const Floats<W> new_max = max_elements(old_max, tile_max);
    const Floats<W> scale(scale_log2_), lowest(-FLT_MAX);
    const Floats<W> minus_offset = 0.0f - max_elements(lowest, new_max * scale);
    // 1 if the largest score is still the old one.
    const Floats<W> factor = word_exp2<E>((old_max - max_elements(lowest, new_max)) * scale);
    Floats<W> total = factor * load_floats<W>(sum_ + column);
    for (int k = 0; k < count; k += P) {
      Floats<W> p[P];
      for (int i = 0; i < P; ++i) {
        const auto score = floats_in(load_words<W>(scores_.row(k + i) + column));
        p[i] = word_exp2<E>(multiply_add(score, scale, minus_offset));
        total += p[i];
      }
      if constexpr (kDropout) {
        for (int i = 0; i < P; ++i) store_words(scores_.row(k + i) + column, words_of(p[i]));
      } else {
        store_words(scores_.row(k / P) + column, packed(p));
      }
    }
    store_floats(max_ + column, new_max);
    store_floats(sum_ + column, total);
    store_floats(correction_ + column, factor);
  }

  // The weights of P keys as words.
  __device__ static __forceinline__ Words<W> packed(const Floats<W> (&p)[P]) {
    if constexpr (P == 1) {
      return words_of(p[0]);
    } else {
      return paired(p[0], p[1]);
    }
  }
  __device__ void pack_weights(int column, int count) {
    for (int k = 0; k < count; k += P) {
      Floats<W> p[P];
      for (int i = 0; i < P; ++i) p[i] = floats_in(load_words<W>(scores_.row(k + i) + column));
      store_words(scores_.row(k / P) + column, packed(p));
    }
  }

  // out = correction * out + weights^T values, for a pass of queries.
  __device__ LLMC_INLINE_ON_GPU void add_values(int column, int count) {
    constexpr int kGroups = Sums::kGroups;
    const auto add = [&](PassSums<kGroups>& sums, int row, int group) {
      for (int r = 0; r < kPassRows; ++r) {
        for (int g = 0; g < kGroups; ++g) sums[r][g] *= correction_[row + r];
      }
      add_steps<E, LeftOrder::steps, kGroups>(sums, scores_.row(0) + row, scores_.kColumns,
                                              values.row(0) + group * W, values.kColumns,
                                              count / P);
    };
    for_each_sum_pass(out, column, column + kPassColumns, head_size_, add);
  }

  float scale_log2_;
  int head_size_;
  typename Tiling::QueryTile queries_;
  typename Tiling::ScoreTile scores_;
  float* max_;  // of the unscaled scores
  float* sum_;
  float* correction_;  // the factor of the earlier sums
};

}  // namespace llmc
