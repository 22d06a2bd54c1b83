// Which tokens a batch contains. A window is T + 1 tokens: T inputs, and T targets that each follow
// their input. Window w of a text begins at token w·T. Consecutive windows share one token, the
// last target of one and the first input of the next; otherwise windows do not overlap.
//
// Training takes the windows of an epoch in shuffled order. The order is a permutation that can be
// evaluated at any single index. Sample g of the run is window permutation(g mod n) of epoch g / n,
// for n windows per epoch. With a constant batch size, g = step × global batch + index in the
// batch. So the batches do not depend on the number of ranks and micro-batches, and a resumed run
// needs only its number of samples. Several sources are shuffled as one text. With weights, each
// source is shuffled separately, and interleave.h selects the source of sample g.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/data/interleave.h"
#include "llmc/io/data/token_source.h"

namespace llmc {

struct Batch {
  std::int64_t B = 0, T = 0;
  std::vector<std::int32_t> inputs{}, targets{};  // (B, T); no targets if no loss is computed
  std::vector<std::int32_t> doc_start{};  // (B, T) row position of the document start; or empty
};

// Number of windows of T inputs with targets in a text of `tokens` tokens. The rest of the text is
// not used.
inline std::int64_t window_count(std::int64_t tokens, std::int64_t T) {
  return tokens > T ? (tokens - 1) / T : 0;
}

// A pseudo-random permutation of 0 .. n-1: a Feistel network on the smallest even number of bits
// that holds n - 1. Each round XORs one half with a hash of the other half. This can be inverted
// for any hash, so the network is a permutation of all numbers with that many bits. Results outside
// 0 .. n-1 go through the network again until they are inside (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002): at most four passes on average.
class Permutation {
 public:
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);

  std::int64_t operator[](std::int64_t i) const;

 private:
  static constexpr std::uint64_t kRounds = 6;

  std::int64_t apply_rounds(std::int64_t i) const;

  std::int64_t n_;
  int half_bits_ = 0;
  std::uint64_t keys_[kRounds];
};

// The windows of several sources, numbered consecutively from the first source to the last.
class Windows {
 public:
  // Throws if a source has no window; the hint of that error begins with `hint`. With `documents`,
  // batches contain doc_start.
  Windows(std::vector<TokenSource> sources, std::int64_t T, bool documents,
          const std::string& hint);

  std::int64_t count() const { return count_; }
  std::int64_t count(std::int64_t source) const {
    return window_count(sources_[static_cast<std::size_t>(source)].size(), T_);
  }
  const std::vector<TokenSource>& sources() const { return sources_; }

  Batch make_batch(std::int64_t B) const;

  // Copies window w into row b of the batch.
  void copy(std::int64_t w, std::int64_t b, Batch& batch) const;

  // Copies window w of one source into row b of the batch.
  void copy(std::int64_t source, std::int64_t w, std::int64_t b, Batch& batch) const;

 private:
  std::vector<TokenSource> sources_;
  std::int64_t T_;
  bool documents_;
  std::vector<std::int64_t> first_window_;  // first window of each source
  std::int64_t count_ = 0;
};

// Training batches, addressed by the global number of their first sample. Any number of threads may
// call `batch` at the same time.
class ShuffledWindows {
 public:
  // `weights` has one weight per source: samples come from the sources in that proportion.
  ShuffledWindows(Windows windows, std::uint64_t seed,
                  std::optional<Interleave> weights = std::nullopt);

  // Number of windows in all sources, which is the number of samples per epoch. Only without
  // weights does an epoch contain each window once.
  std::int64_t windows() const { return windows_.count(); }
  const Windows& windows_by_source() const { return windows_; }
  const std::optional<Interleave>& weights() const { return weights_; }

  // Returns samples first .. first + B - 1 of the run.
  Batch batch(std::int64_t first, std::int64_t B) const;

 private:
  // Returns the window of a sample. Each epoch takes the n windows in a new order.
  static std::int64_t shuffled_window(std::int64_t sample, std::int64_t n, std::uint64_t seed) {
    return Permutation(n, seed, static_cast<std::uint64_t>(sample / n))[sample % n];
  }

  Windows windows_;
  std::uint64_t seed_;
  std::optional<Interleave> weights_;
};

// Evaluation batches; the last one may be smaller. The windows of a single source are taken in
// order. With several sources, a constant step through all windows makes the first few come from
// all sources.
class ConsecutiveWindows {
 public:
  explicit ConsecutiveWindows(Windows windows);

  std::int64_t windows() const { return windows_.count(); }
  const Windows& windows_by_source() const { return windows_; }

  // Returns windows first .. first + B - 1, or fewer if the windows end before that.
  Batch batch(std::int64_t first, std::int64_t B) const;

 private:
  // step_ and the number of windows have no common factor, so each window occurs once. The product
  // may exceed 2^63.
  std::int64_t window_at(std::int64_t i) const {
    return static_cast<std::int64_t>(static_cast<__int128>(i) * step_ % windows_.count());
  }

  Windows windows_;
  std::int64_t step_ = 1;
};

struct TrainValidationSplit {
  std::vector<TokenSource> train, validation;
};

// Reserves the last 5% of each source, at least one window, for validation.
TrainValidationSplit split_validation(const std::vector<TokenSource>& sources, std::int64_t T);

}  // namespace llmc
