#include "llmc/io/data/padded_batches.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"

namespace llmc {

PaddedSequences::PaddedSequences(std::vector<TokenSequence> sequences, PaddingOptions options,
                                 const std::string& source)
    : sequences_(std::move(sequences)), options_(options) {
  require(options_.T >= 1 && options_.length_multiple >= 1 && options_.pad_token >= 0,
          "sequences need a length, and a pad token in the vocabulary");
  if (sequences_.empty()) fail(source + " has no sequences");
  has_targets_ = !sequences_.front().targets.empty();
  for (TokenSequence& sequence : sequences_) {
    auto& [tokens, targets] = sequence;
    if (tokens.empty()) {
      fail(source + ": sequence " + std::to_string(&sequence - sequences_.data()) +
           " has no tokens");
    }
    require(targets.size() == (has_targets_ ? tokens.size() : 0),
            "each token of all sequences needs a target, or none");
    if (std::ssize(tokens) > options_.T) {
      tokens.resize(static_cast<std::size_t>(options_.T));
      if (has_targets_) targets.resize(tokens.size());
      ++num_cut_;
    }
    num_ending_in_padding_ += tokens.back() == options_.pad_token ? 1 : 0;
  }
}

std::int64_t PaddedSequences::padded_length(std::span<const std::int64_t> sequences) const {
  std::int64_t longest = 1;
  for (const std::int64_t sequence : sequences) longest = std::max(longest, length(sequence));
  const std::int64_t multiple = options_.length_multiple;
  return std::min(options_.T, (longest + multiple - 1) / multiple * multiple);
}

PaddedBatch PaddedSequences::batch(std::span<const std::int64_t> sequences,
                                   std::int64_t length) const {
  const std::int64_t B = std::ssize(sequences);
  const auto size = static_cast<std::size_t>(B * length);
  PaddedBatch out;
  out.batch = {.B = B, .T = length, .inputs = std::vector(size, options_.pad_token)};
  if (has_targets_) out.batch.targets.assign(size, -1);
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t index = sequences[static_cast<std::size_t>(b)];
    const auto& [tokens, targets] = sequences_[static_cast<std::size_t>(index)];
    require(std::ssize(tokens) <= length, "a sequence is longer than its batch");
    std::ranges::copy(tokens, out.batch.inputs.begin() + b * length);
    std::ranges::copy(targets, out.batch.targets.begin() + (has_targets_ ? b * length : 0));
    std::int64_t last = std::ssize(tokens) - 1;
    while (last > 0 && tokens[static_cast<std::size_t>(last)] == options_.pad_token) --last;
    out.sequences.push_back(index);
    out.lengths.push_back(std::ssize(tokens));
    out.last_tokens.push_back(last);
  }
  return out;
}

ShuffledSequences::ShuffledSequences(const PaddedSequences& sequences, std::int64_t global_batch,
                                     std::uint64_t seed)
    : sequences_(sequences), global_batch_(global_batch), seed_(seed) {
  require(global_batch >= 1, "a global batch needs at least one sequence");
}

PaddedBatch ShuffledSequences::batch(std::int64_t first, std::int64_t B) const {
  const std::int64_t step = first / global_batch_, begin = first % global_batch_;
  require(B >= 1 && begin + B <= global_batch_, "a batch is not inside one global batch");
  const std::vector<std::int64_t> sequences = global_batch(step);
  const std::int64_t length = sequences_.padded_length(sequences);
  return sequences_.batch(
      std::span(sequences).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(B)),
      length);
}

std::vector<std::int64_t> ShuffledSequences::global_batch(std::int64_t step) const {
  const std::int64_t n = sequences_.count(), end = (step + 1) * global_batch_;
  std::vector<std::int64_t> batch;
  for (std::int64_t sample = step * global_batch_; sample < end; ++sample) {
    const std::int64_t epoch = sample / n, place = sample % n;
    const EpochBatches whole = batches_of_epoch(epoch);
    const std::int64_t whole_end = whole.begin + whole.count * global_batch_;
    if (place >= whole.begin && place < whole_end) {
      return batch_of_epoch(epoch, (place - whole.begin) / global_batch_);
    }
    batch.push_back(Permutation(n, seed_, static_cast<std::uint64_t>(epoch))[place]);
  }
  return batch;
}

ShuffledSequences::EpochBatches ShuffledSequences::batches_of_epoch(std::int64_t epoch) const {
  const std::int64_t n = sequences_.count(), begun = epoch * n % global_batch_;
  const std::int64_t begin = begun == 0 ? 0 : global_batch_ - begun;
  return {begin, std::max<std::int64_t>(0, n - begin) / global_batch_};
}

std::vector<std::int64_t> ShuffledSequences::batch_of_epoch(std::int64_t epoch,
                                                            std::int64_t index) const {
  const auto epoch_key = static_cast<std::uint64_t>(epoch);
  const EpochBatches whole = batches_of_epoch(epoch);
  const std::int64_t sorted = Permutation(whole.count, mix64(seed_, 1), epoch_key)[index];
  const std::int64_t pool = sorted / kPool * kPool;
  const std::int64_t pool_size = std::min(kPool, whole.count - pool);

  const Permutation shuffled(sequences_.count(), seed_, epoch_key);
  std::vector<std::int64_t> members;
  const std::int64_t first = whole.begin + pool * global_batch_;
  for (std::int64_t place = first; place < first + pool_size * global_batch_; ++place) {
    members.push_back(shuffled[place]);
  }
  std::ranges::stable_sort(members, {}, [&](std::int64_t i) { return sequences_.length(i); });
  const auto begin = members.begin() + (sorted - pool) * global_batch_;
  return {begin, begin + global_batch_};
}

SortedSequences::SortedSequences(const PaddedSequences& sequences)
    : sequences_(sequences), order_(static_cast<std::size_t>(sequences.count())) {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  std::ranges::stable_sort(order_, std::ranges::greater(),
                           [&](std::int64_t i) { return sequences_.length(i); });
}

PaddedBatch SortedSequences::batch(std::int64_t first, std::int64_t B) const {
  require(first >= 0 && first < count() && B >= 1, "no sequence is at this place");
  const auto rows = std::span(order_).subspan(
      static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(B, count() - first)));
  return sequences_.batch(rows, sequences_.padded_length(rows));
}

}  // namespace llmc
