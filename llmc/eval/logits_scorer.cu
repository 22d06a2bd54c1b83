#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/device.h"
#include "llmc/eval/logits_scorer.h"

namespace llmc {

LogitsScorer::LogitsScorer(EvaluationPass& runner, const EvalTask& task)
    : runner_(runner),
      task_(task),
      max_piece_(std::max<std::int64_t>(1, kMaxPieceLogits / vocabulary_size())) {
  require(runner.context().tensor.ranks() == 1,
          "log-probabilities of the whole vocabulary need a model on one rank");
}

const TokenLogProbs* LogitsScorer::next() {
  if (index_ == scored_.size()) {
    if (next_row_ == task_.rows()) return nullptr;
    run_batch();
  }
  if (index_ == piece_end_) read_piece();
  const auto V = static_cast<std::size_t>(vocabulary_size());
  const float* row = logits_.data() + (index_ - piece_begin_) * V;
  row_logits_.assign(row, row + V);
  log_softmax(row_logits_, log_probs_);
  const auto likeliest = std::max_element(row_logits_.begin(), row_logits_.end());
  const std::int32_t token = scored_[index_].token;
  current_ = {token, static_cast<std::int32_t>(likeliest - row_logits_.begin()),
              log_probs_[static_cast<std::size_t>(token)], log_probs_};
  ++index_;
  return &current_;
}

void LogitsScorer::run_batch() {
  const std::int64_t count = std::min(runner_.shape().B, task_.rows() - next_row_);
  std::vector<EvalRow> rows;
  std::int64_t length = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    rows.push_back(task_.row(next_row_ + i));
    length = std::max(length, std::ssize(rows.back().tokens) - 1);
  }
  require(length >= 1 && length <= runner_.shape().T,
          "a row of " + std::to_string(length + 1) + " tokens does not fit the model");
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(count * length), 0);
  scored_.clear();
  index_ = piece_end_ = 0;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::vector<std::int32_t>& tokens = rows[b].tokens;
    std::copy(tokens.begin(), tokens.end() - 1, inputs.begin() + b * length);
    const std::int64_t first = std::ssize(tokens) - rows[b].num_scored;
    for (std::int64_t t = first; t < std::ssize(tokens); ++t) {
      scored_.push_back({b * length + t - 1, tokens[t]});
    }
  }
  runner_.run({.batch = {.B = count, .T = length, .inputs = std::move(inputs)}});
  next_row_ += count;
}

void LogitsScorer::read_piece() {
  const std::int64_t limit = std::min(max_piece_, runner_.shape().chunk_rows());
  const std::int64_t first = scored_[index_].row;
  std::int64_t count = 1;
  const auto is_next = [&] {
    const std::size_t i = index_ + static_cast<std::size_t>(count);
    return i < scored_.size() && scored_[i].row == first + count;
  };
  while (count < limit && is_next()) ++count;
  runner_.read_logits(first, count, logits_);
  piece_begin_ = index_;
  piece_end_ = index_ + static_cast<std::size_t>(count);
}

}  // namespace llmc
