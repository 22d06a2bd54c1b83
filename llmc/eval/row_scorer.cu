#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/eval/row_scorer.h"

namespace llmc {

std::vector<RowScore> RowScorer::score(const EvalTask& task, const OnBatch& on_batch) {
  const std::vector<RowBatch> batches = make_batches(task);
  const Ranks& place = runner_.context().ranks;
  const auto ranks = static_cast<std::size_t>(place.mesh().data_ranks());
  std::int64_t total = 0, done = 0;
  for (const RowBatch& batch : batches) total += batch.tokens;
  std::vector<RowScore> scores(static_cast<std::size_t>(task.rows()));
  for (std::size_t first = 0; first < batches.size(); first += ranks) {
    // A rank for which no batch is left repeats the first one, so that all ranks run a model.
    const std::size_t own = first + static_cast<std::size_t>(place.data_rank());
    const RowBatch& batch = batches[own < batches.size() ? own : 0];
    const std::vector<RowScore> batch_scores = score_batch(task, batch);
    const bool counts = own < batches.size() && place.first_of_data_rank();
    for (std::size_t i = 0; counts && i < batch.rows.size(); ++i) {
      scores[batch.rows[i]] = batch_scores[i];
    }
    for (std::size_t i = first; i < std::min(first + ranks, batches.size()); ++i) {
      done += batches[i].tokens;
    }
    if (!on_batch(done, total)) return {};
  }
  all_reduce(scores);
  return scores;
}

std::vector<RowScorer::RowBatch> RowScorer::make_batches(const EvalTask& task) const {
  std::vector<std::size_t> order(static_cast<std::size_t>(task.rows()));
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::size_t i) { return task.row_length(static_cast<std::int64_t>(i)); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  std::vector<RowBatch> batches;
  for (std::size_t first = 0; first < order.size();) {
    RowBatch batch{.length = length(order[first]) - 1};
    require(batch.length >= 1 && batch.length <= runner_.shape().T,
            "an evaluation row has fewer than two tokens, or too many");
    const auto max_rows = static_cast<std::size_t>(max_sequences(batch.length));
    const std::size_t end = std::min(order.size(), first + max_rows);
    for (std::size_t i = first; i < end; ++i) {
      batch.rows.push_back(order[i]);
      batch.tokens += length(order[i]);
    }
    batches.push_back(std::move(batch));
    first = end;
  }
  return batches;
}

std::int64_t RowScorer::max_sequences(std::int64_t length) const {
  return std::min(runner_.shape().rows() / length, runner_.max_sequences());
}

void RowScorer::all_reduce(std::vector<RowScore>& scores) {
  std::vector<std::int64_t> bits;
  for (const RowScore& score : scores) {
    bits.push_back(std::bit_cast<std::int64_t>(score.nll));
    bits.push_back(score.greedy ? 1 : 0);
    bits.push_back(std::bit_cast<std::int64_t>(score.nll_squares));
  }
  exchange_.sum(bits);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = {std::bit_cast<double>(bits[3 * i]), bits[3 * i + 1] != 0,
                 std::bit_cast<double>(bits[3 * i + 2])};
  }
}

std::vector<RowScore> RowScorer::score_batch(const EvalTask& task, const RowBatch& row_batch) {
  std::vector<EvalRow> rows;
  for (const std::size_t i : row_batch.rows) rows.push_back(task.row(static_cast<std::int64_t>(i)));
  const std::int64_t length = row_batch.length;
  const bool greedy = task.needs_greedy();
  const auto B = static_cast<std::int64_t>(rows.size());
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(B * length), 0);
  std::vector<std::int32_t> targets(inputs.size(), -1);
  for (std::int64_t b = 0; b < B; ++b) {
    const std::vector<std::int32_t>& tokens = rows[b].tokens;
    std::copy(tokens.begin(), tokens.end() - 1, inputs.begin() + b * length);
    std::copy(tokens.end() - rows[b].num_scored, tokens.end(),
              targets.begin() + b * length + first_target(rows[b]));
  }
  runner_.run({.batch = {.B = B, .T = length, .inputs = inputs, .targets = targets}});
  std::vector<float> losses;
  runner_.read_losses(losses);

  std::vector<RowScore> scores(rows.size());
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t begin = b * length + first_target(rows[b]);
    for (std::int64_t i = 0; i < rows[b].num_scored; ++i) {
      const auto nll = static_cast<double>(losses[begin + i]);
      scores[b].nll += nll;
      scores[b].nll_squares += nll * nll;
    }
    scores[b].greedy = greedy && std::isfinite(scores[b].nll) && all_greedy(rows[b], begin);
  }
  return scores;
}

bool RowScorer::all_greedy(const EvalRow& row, std::int64_t begin) {
  for (std::int64_t i = 0; i < row.num_scored; ++i) {
    runner_.read_logits(begin + i, logits_);
    const auto best = std::max_element(logits_.begin(), logits_.end());
    const std::int32_t target = row.tokens[row.tokens.size() - row.num_scored + i];
    if (best - logits_.begin() != target) return false;
  }
  return true;
}

}  // namespace llmc
