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

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
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
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
    while ((std::int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      keys_[round] = mix64(seed, epoch, round);
    }
  }

  std::int64_t operator[](std::int64_t i) const {
    do {
      i = apply_rounds(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr std::uint64_t kRounds = 6;

  std::int64_t apply_rounds(std::int64_t i) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = static_cast<std::uint64_t>(i) >> half_bits_;
    std::uint64_t right = static_cast<std::uint64_t>(i) & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next_right = left ^ (mix64(right ^ key) & mask);
      left = right;
      right = next_right;
    }
    return static_cast<std::int64_t>(left << half_bits_ | right);
  }

  std::int64_t n_;
  int half_bits_ = 0;
  std::uint64_t keys_[kRounds];
};

// The windows of several sources, numbered consecutively from the first source to the last.
class Windows {
 public:
  // Throws if a source has no window; the hint of that error begins with `hint`. With `documents`,
  // batches contain doc_start.
  Windows(std::vector<TokenSource> sources, std::int64_t T, bool documents, const std::string& hint)
      : sources_(std::move(sources)), T_(T), documents_(documents) {
    for (const TokenSource& source : sources_) {
      const std::int64_t count = window_count(source.size(), T);
      if (count == 0) {
        fail(source.name() + " has " + std::to_string(source.size()) +
                 " tokens, too few for sequences of " + std::to_string(T),
             source.size() > 1 ? hint + ", or reduce " + quantity("sequence length") +
                                     " to at most " + std::to_string(source.size() - 1)
                               : hint);
      }
      first_window_.push_back(count_);
      count_ += count;
    }
    require(count_ > 0, "windows need at least one text");
  }

  std::int64_t count() const { return count_; }
  std::int64_t count(std::int64_t source) const {
    return window_count(sources_[static_cast<std::size_t>(source)].size(), T_);
  }
  const std::vector<TokenSource>& sources() const { return sources_; }

  Batch make_batch(std::int64_t B) const {
    const auto size = static_cast<std::size_t>(B * T_);
    Batch batch{B, T_, std::vector<std::int32_t>(size), std::vector<std::int32_t>(size), {}};
    if (documents_) batch.doc_start.resize(size);
    return batch;
  }

  // Copies window w into row b of the batch.
  void copy(std::int64_t w, std::int64_t b, Batch& batch) const {
    const auto next_source = std::upper_bound(first_window_.begin(), first_window_.end(), w);
    const auto source = next_source - first_window_.begin() - 1;
    copy(source, w - first_window_[static_cast<std::size_t>(source)], b, batch);
  }

  // Copies window w of one source into row b of the batch.
  void copy(std::int64_t source, std::int64_t w, std::int64_t b, Batch& batch) const {
    const TokenSource& text = sources_[static_cast<std::size_t>(source)];
    std::int32_t* inputs = batch.inputs.data() + b * T_;
    text.copy(w * T_, T_, inputs);
    text.copy(w * T_ + 1, T_, batch.targets.data() + b * T_);
    if (!documents_) return;
    text.document_starts(w * T_, std::span(inputs, static_cast<std::size_t>(T_)),
                         batch.doc_start.data() + b * T_);
  }

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
                  std::optional<Interleave> weights = std::nullopt)
      : windows_(std::move(windows)), seed_(seed), weights_(std::move(weights)) {
    const auto sources = static_cast<std::int64_t>(windows_.sources().size());
    require(!weights_ || weights_->sources() == sources, "each source needs one weight");
  }

  // Number of windows in all sources, which is the number of samples per epoch. Only without
  // weights does an epoch contain each window once.
  std::int64_t windows() const { return windows_.count(); }
  const Windows& windows_by_source() const { return windows_; }
  const std::optional<Interleave>& weights() const { return weights_; }

  // Returns samples first .. first + B - 1 of the run.
  Batch batch(std::int64_t first, std::int64_t B) const {
    Batch batch = windows_.make_batch(B);
    for (std::int64_t b = 0; b < B; ++b) {
      if (weights_) {
        const Interleave::Location location = (*weights_)[first + b];
        const std::uint64_t seed = mix64(seed_, static_cast<std::uint64_t>(location.source));
        const std::int64_t w =
            shuffled_window(location.sample, windows_.count(location.source), seed);
        windows_.copy(location.source, w, b, batch);
      } else {
        windows_.copy(shuffled_window(first + b, windows_.count(), seed_), b, batch);
      }
    }
    return batch;
  }

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
  explicit ConsecutiveWindows(Windows windows) : windows_(std::move(windows)) {
    if (windows_.sources().size() == 1) return;
    const std::int64_t n = windows_.count();
    // Multiples of the golden ratio, modulo 1, are evenly distributed for any number of multiples.
    step_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(0.6180339887498949 * static_cast<double>(n)));
    while (std::gcd(step_, n) != 1) ++step_;
  }

  std::int64_t windows() const { return windows_.count(); }
  const Windows& windows_by_source() const { return windows_; }

  // Returns windows first .. first + B - 1, or fewer if the windows end before that.
  Batch batch(std::int64_t first, std::int64_t B) const {
    Batch batch = windows_.make_batch(std::min(B, windows_.count() - first));
    for (std::int64_t b = 0; b < batch.B; ++b) windows_.copy(window_at(first + b), b, batch);
    return batch;
  }

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
inline TrainValidationSplit split_validation(const std::vector<TokenSource>& sources,
                                             std::int64_t T) {
  TrainValidationSplit split;
  for (const TokenSource& source : sources) {
    const std::int64_t size = source.size(), num_validation = std::max(size / 20, T + 1);
    if (size < num_validation + T + 1) {
      fail(source.name() + " has " + std::to_string(size) +
               " tokens, too few for training and validation sequences of " + std::to_string(T),
           "give " + quantity("validation text") + ", or reduce " + quantity("sequence length") +
               " to at most " + std::to_string(std::max<std::int64_t>(1, size / 2 - 1)));
    }
    split.train.push_back(source.slice(0, size - num_validation, source.name()));
    split.validation.push_back(
        source.slice(size - num_validation, size, "the end of " + source.name()));
  }
  return split;
}

}  // namespace llmc
