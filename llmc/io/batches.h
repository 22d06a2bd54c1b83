// Which tokens a batch holds. A window is T tokens and the T that follow each of them; window w of
// a text begins at token w·T, so windows do not overlap but for the one token that is both a target
// and the next input.
//
// Training takes the windows of an epoch in shuffled order. The order is a permutation that can be
// asked for one place at a time: sample g of the run (g = step × global batch + place in the batch)
// is window permutation(g mod n) of epoch g / n. So any number of ranks and any micro-batching see
// the same batches, and a resumed run needs only its step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/device/error.h"
#include "llmc/io/mix.h"
#include "llmc/io/token_file.h"

namespace llmc {

struct Batch {
  std::int64_t B = 0, T = 0;
  std::vector<std::int32_t> inputs, targets;  // (B, T)
};

// Windows of T tokens with targets in a text of `tokens` tokens; the rest of the text is left over.
inline std::int64_t window_count(std::int64_t tokens, std::int64_t T) {
  return tokens > T ? (tokens - 1) / T : 0;
}

// A pseudo-random permutation of 0 .. n-1, by a Feistel network on the smallest even number of bits
// that holds n - 1: each round adds to one half a hash of the other, which can be undone whatever
// the hash is, so the network is a permutation of all numbers of so many bits. Numbers that fall
// outside 0 .. n-1 are sent through again until they fall inside (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002): at most four times on average.
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
      i = once(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr std::uint64_t kRounds = 6;

  std::int64_t once(std::int64_t i) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = static_cast<std::uint64_t>(i) >> half_bits_;
    std::uint64_t right = static_cast<std::uint64_t>(i) & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t mixed = left ^ (mix64(right ^ key) & mask);
      left = right;
      right = mixed;
    }
    return static_cast<std::int64_t>(left << half_bits_ | right);
  }

  std::int64_t n_;
  int half_bits_ = 0;
  std::uint64_t keys_[kRounds];
};

// Copies window w into row b of the batch.
inline void copy_window(const TokenData& tokens, std::int64_t w, std::int64_t b, Batch& batch) {
  const std::int64_t T = batch.T;
  tokens.copy(w * T, T, batch.inputs.data() + b * T);
  tokens.copy(w * T + 1, T, batch.targets.data() + b * T);
}

inline Batch make_batch(std::int64_t B, std::int64_t T) {
  const auto size = static_cast<std::size_t>(B * T);
  return {B, T, std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
}

// Training batches, by the global number of their first sample.
class ShuffledWindows {
 public:
  // `name` is what errors call the text.
  ShuffledWindows(TokenData tokens, std::int64_t T, std::uint64_t seed, const std::string& name)
      : tokens_(std::move(tokens)), T_(T), windows_(window_count(tokens_.size(), T)), seed_(seed) {
    if (windows_ > 0) return;
    fail(name + " has " + std::to_string(tokens_.size()) + " tokens, too few for sequences of " +
             std::to_string(T),
         tokens_.size() > 1 ? "--seq-len of at most " + std::to_string(tokens_.size() - 1)
                            : "a longer text");
  }

  std::int64_t windows() const { return windows_; }
  std::int64_t tokens() const { return tokens_.size(); }

  // Samples first .. first + B - 1 of the run.
  Batch batch(std::int64_t first, std::int64_t B) const {
    Batch batch = make_batch(B, T_);
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t sample = first + b;
      const Permutation order(windows_, seed_, static_cast<std::uint64_t>(sample / windows_));
      copy_window(tokens_, order[sample % windows_], b, batch);
    }
    return batch;
  }

 private:
  TokenData tokens_;
  std::int64_t T_, windows_;
  std::uint64_t seed_;
};

// Evaluation batches: the windows one after the other; the last batch may be smaller.
class ConsecutiveWindows {
 public:
  ConsecutiveWindows(TokenData tokens, std::int64_t T, const std::string& name)
      : tokens_(std::move(tokens)), T_(T), windows_(window_count(tokens_.size(), T)) {
    if (windows_ > 0) return;
    fail(name + " has " + std::to_string(tokens_.size()) + " tokens, too few for sequences of " +
             std::to_string(T),
         "a longer validation text, or a smaller --seq-len");
  }

  std::int64_t windows() const { return windows_; }

  // Windows first .. first + B - 1, or as many of them as there are.
  Batch batch(std::int64_t first, std::int64_t B) const {
    Batch batch = make_batch(std::min(B, windows_ - first), T_);
    for (std::int64_t b = 0; b < batch.B; ++b) copy_window(tokens_, first + b, b, batch);
    return batch;
  }

 private:
  TokenData tokens_;
  std::int64_t T_, windows_;
};

struct TrainValidationSplit {
  TokenData train, validation;
};

// The last 5% of a text, one window at least, are kept from training.
inline TrainValidationSplit split_validation(const TokenData& tokens, std::int64_t T,
                                             const std::string& name) {
  const std::int64_t kept = std::max(tokens.size() / 20, T + 1);
  if (tokens.size() < kept + T + 1) {
    fail(name + " has " + std::to_string(tokens.size()) +
             " tokens, too few for training and validation sequences of " + std::to_string(T),
         "give --val, or --seq-len of at most " +
             std::to_string(std::max<std::int64_t>(1, tokens.size() / 2 - 1)));
  }
  const std::int64_t end = tokens.size() - kept;
  return {tokens.slice(0, end), tokens.slice(end, tokens.size())};
}

}  // namespace llmc
