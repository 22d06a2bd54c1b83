// Batches of token sequences with different lengths. A shorter sequence is padded on the right;
// with causal attention, padding changes no position before it. Sequences of similar length are in
// one batch, so that little is padded.
//
// Training takes samples 0, 1, 2, ...: sample g is a sequence of epoch g / n, for n sequences, and
// each epoch contains each sequence once. G consecutive samples, from a multiple of G on, are the
// global batch of a step. The order depends only on the lengths, the seed and G, so a rank computes
// any of its rows from their sample numbers, and the global batch of a step does not depend on the
// number of ranks and micro-batches. It is made in three steps:
//
// 1. A permutation shuffles the sequences of an epoch (batches.h).
// 2. The global batches that lie completely in the epoch are cut, in this order, into pools of 32
//    (the last pool may be smaller). The sequences of a pool are sorted by length, and each G of
//    them are a global batch.
// 3. A second permutation shuffles these global batches.
//
// A global batch that two epochs share has sequences of all lengths. All rows of a global batch are
// padded to the same length, that of its longest sequence, on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmc/io/data/batches.h"

namespace llmc {

struct TokenSequence {
  std::vector<std::int32_t> tokens{};
  // One target per token, -1 for none (classifier.h); empty if no sequence has targets.
  std::vector<std::int32_t> targets{};
};

struct PaddedBatch {
  // Padded inputs are the pad token, padded targets are -1.
  Batch batch{};
  std::vector<std::int64_t> sequences{};  // (B) index of each row's sequence
  std::vector<std::int64_t> lengths{};    // (B) tokens of each row, without padding
  // (B) position of the last token that is not the pad token, as GPT2ForSequenceClassification of
  // transformers finds it. It is lengths[b] - 1, unless the sequence itself ends with the pad
  // token: then it is before these tokens. It is 0 if all tokens of a row are the pad token.
  std::vector<std::int64_t> last_tokens{};
};

struct PaddingOptions {
  std::int64_t T = 0;                // maximum length: a longer sequence loses its end
  std::int32_t pad_token = 0;        // in the vocabulary
  std::int64_t length_multiple = 1;  // lengths of batches are rounded up to it, at most to T
};

// Sequences, and batches of any of them.
class PaddedSequences {
 public:
  // Errors call the sequences `source`. Throws if there is none, or if one has no tokens.
  PaddedSequences(std::vector<TokenSequence> sequences, PaddingOptions options,
                  const std::string& source);

  std::int64_t count() const { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t length(std::int64_t sequence) const {
    return static_cast<std::int64_t>(sequences_[static_cast<std::size_t>(sequence)].tokens.size());
  }

  // Number of sequences that lost their end.
  std::int64_t num_cut() const { return num_cut_; }
  // Number of sequences that end with the pad token, so that their last token is not at their end.
  std::int64_t num_ending_in_padding() const { return num_ending_in_padding_; }

  // The length to which a batch with these sequences is padded.
  std::int64_t padded_length(std::span<const std::int64_t> sequences) const;

  // A batch with these sequences, which have at most `length` tokens.
  PaddedBatch batch(std::span<const std::int64_t> sequences, std::int64_t length) const;

 private:
  std::vector<TokenSequence> sequences_;
  PaddingOptions options_;
  bool has_targets_;
  std::int64_t num_cut_ = 0, num_ending_in_padding_ = 0;
};

// Training batches. Any number of threads may call its functions at the same time. The sequences
// must outlive this.
class ShuffledSequences {
 public:
  // `global_batch`: G, the number of sequences in a step.
  ShuffledSequences(const PaddedSequences& sequences, std::int64_t global_batch,
                    std::uint64_t seed);

  // Returns samples first .. first + B - 1 of the run, which must be in one global batch.
  PaddedBatch batch(std::int64_t first, std::int64_t B) const;

  // The sequences of a step, in the order of its samples.
  std::vector<std::int64_t> global_batch(std::int64_t step) const;

 private:
  static constexpr std::int64_t kPool = 32;  // global batches

  // The global batches that lie completely in an epoch.
  struct EpochBatches {
    std::int64_t begin;  // place of the first one in the epoch
    std::int64_t count;
  };

  EpochBatches batches_of_epoch(std::int64_t epoch) const;

  // The sequences of global batch `index` of those that lie completely in an epoch.
  std::vector<std::int64_t> batch_of_epoch(std::int64_t epoch, std::int64_t index) const;

  const PaddedSequences& sequences_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
};

// Evaluation batches, from the longest sequence to the shortest: if memory is exhausted, it is in
// the first batch. Sequences of equal length are in order. The sequences must outlive this.
class SortedSequences {
 public:
  explicit SortedSequences(const PaddedSequences& sequences);

  std::int64_t count() const { return sequences_.count(); }

  // Returns the sequences at first .. first + B - 1 in this order, or fewer if they end before
  // that.
  PaddedBatch batch(std::int64_t first, std::int64_t B) const;

 private:
  const PaddedSequences& sequences_;
  std::vector<std::int64_t> order_;
};

}  // namespace llmc
