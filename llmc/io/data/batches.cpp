#include "llmc/io/data/batches.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"

namespace llmc {

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
  while ((std::int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    keys_[round] = mix64(seed, epoch, round);
  }
}

std::int64_t Permutation::operator[](std::int64_t i) const {
  do {
    i = apply_rounds(i);
  } while (i >= n_);
  return i;
}

std::int64_t Permutation::apply_rounds(std::int64_t i) const {
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

Windows::Windows(std::vector<TokenSource> sources, std::int64_t T, bool documents,
                 const std::string& hint)
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

Batch Windows::make_batch(std::int64_t B) const {
  const auto size = static_cast<std::size_t>(B * T_);
  Batch batch{B, T_, std::vector<std::int32_t>(size), std::vector<std::int32_t>(size), {}};
  if (documents_) batch.doc_start.resize(size);
  return batch;
}

void Windows::copy(std::int64_t w, std::int64_t b, Batch& batch) const {
  const auto next_source = std::upper_bound(first_window_.begin(), first_window_.end(), w);
  const auto source = next_source - first_window_.begin() - 1;
  copy(source, w - first_window_[static_cast<std::size_t>(source)], b, batch);
}

void Windows::copy(std::int64_t source, std::int64_t w, std::int64_t b, Batch& batch) const {
  const TokenSource& text = sources_[static_cast<std::size_t>(source)];
  std::int32_t* inputs = batch.inputs.data() + b * T_;
  text.copy(w * T_, T_, inputs);
  text.copy(w * T_ + 1, T_, batch.targets.data() + b * T_);
  if (!documents_) return;
  text.document_starts(w * T_, std::span(inputs, static_cast<std::size_t>(T_)),
                       batch.doc_start.data() + b * T_);
}

ShuffledWindows::ShuffledWindows(Windows windows, std::uint64_t seed,
                                 std::optional<Interleave> weights)
    : windows_(std::move(windows)), seed_(seed), weights_(std::move(weights)) {
  const auto sources = static_cast<std::int64_t>(windows_.sources().size());
  require(!weights_ || weights_->sources() == sources, "each source needs one weight");
}

Batch ShuffledWindows::batch(std::int64_t first, std::int64_t B) const {
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

ConsecutiveWindows::ConsecutiveWindows(Windows windows) : windows_(std::move(windows)) {
  if (windows_.sources().size() == 1) return;
  const std::int64_t n = windows_.count();
  // Multiples of the golden ratio, modulo 1, are evenly distributed for any number of multiples.
  step_ = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(0.6180339887498949 * static_cast<double>(n)));
  while (std::gcd(step_, n) != 1) ++step_;
}

Batch ConsecutiveWindows::batch(std::int64_t first, std::int64_t B) const {
  Batch batch = windows_.make_batch(std::min(B, windows_.count() - first));
  for (std::int64_t b = 0; b < batch.B; ++b) windows_.copy(window_at(first + b), b, batch);
  return batch;
}

TrainValidationSplit split_validation(const std::vector<TokenSource>& sources, std::int64_t T) {
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
