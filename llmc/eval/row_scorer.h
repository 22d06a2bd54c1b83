// Scores the rows of an evaluation task with a model.
//
// A batch has rows of nearly the same length, padded on the right. Under causal attention the
// padding does not change a prediction before it, and targets of -1 keep it out of the losses. A
// batch has as many rows as fit into the memory that the model has for a batch. This number changes
// the shape of the matrix products and so only the last bits of a score; the same run returns the
// same bits. A row's score is summed on the host, in fp64, in order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/eval/task.h"
#include "llmc/model/model_runner.h"

namespace llmc {

template <class T>
class RowScorer {
 public:
  // The runner must outlive the scorer.
  explicit RowScorer(ModelRunner<T>& runner) : runner_(runner) {}

  // Returns the scores of all rows, in their order. After every batch it calls `on_batch(tokens so
  // far, all tokens)`; if that returns false, it stops and returns no scores.
  std::vector<RowScore> score(const EvalTask& task,
                              const std::function<bool(std::int64_t, std::int64_t)>& on_batch) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(task.rows()));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return task.row_length(a) > task.row_length(b);
    });
    std::int64_t total = 0, done = 0;
    for (const std::int64_t i : order) total += task.row_length(i);
    std::vector<RowScore> scores(order.size());
    for (std::size_t first = 0; first < order.size();) {
      const std::int64_t max_length = task.row_length(order[first]) - 1;
      require(max_length >= 1 && max_length <= runner_.shape().T,
              "an evaluation row has fewer than two tokens, or too many");
      const auto max_rows = static_cast<std::size_t>(runner_.shape().rows() / max_length);
      const std::size_t end = std::min(order.size(), first + max_rows);
      std::vector<EvalRow> rows;
      for (std::size_t i = first; i < end; ++i) {
        rows.push_back(task.row(order[i]));
        done += task.row_length(order[i]);
      }
      const std::vector<RowScore> batch_scores = score_batch(rows, max_length, task.needs_greedy());
      for (std::size_t i = first; i < end; ++i) scores[order[i]] = batch_scores[i - first];
      if (!on_batch(done, total)) return {};
      first = end;
    }
    return scores;
  }

 private:
  std::vector<RowScore> score_batch(const std::vector<EvalRow>& rows, std::int64_t length,
                                    bool greedy) {
    const auto B = static_cast<std::int64_t>(rows.size());
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(B * length), 0);
    std::vector<std::int32_t> targets(inputs.size(), -1);
    for (std::int64_t b = 0; b < B; ++b) {
      const std::vector<std::int32_t>& tokens = rows[b].tokens;
      std::copy(tokens.begin(), tokens.end() - 1, inputs.begin() + b * length);
      std::copy(tokens.end() - rows[b].num_scored, tokens.end(),
                targets.begin() + b * length + first_target(rows[b]));
    }
    const DeviceBatch batch =
        runner_.put({.batch = {.B = B, .T = length, .inputs = inputs, .targets = targets}});
    runner_.forward(batch);
    std::vector<float> losses;
    runner_.read_losses(batch, losses);

    std::vector<RowScore> scores(rows.size());
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t begin = b * length + first_target(rows[b]);
      for (std::int64_t i = 0; i < rows[b].num_scored; ++i) {
        scores[b].nll += static_cast<double>(losses[begin + i]);
      }
      scores[b].greedy = greedy && std::isfinite(scores[b].nll) && all_greedy(rows[b], begin);
    }
    return scores;
  }

  // Index in the row of the position whose target is the first scored token: one before that token.
  static std::int64_t first_target(const EvalRow& row) {
    return static_cast<std::int64_t>(row.tokens.size()) - 1 - row.num_scored;
  }

  // Whether each scored token is the most likely one. Among equal logits the one with the smallest
  // id counts as the most likely.
  bool all_greedy(const EvalRow& row, std::int64_t begin) {
    for (std::int64_t i = 0; i < row.num_scored; ++i) {
      runner_.read_logits(begin + i, logits_);
      const auto best =
          std::max_element(logits_.begin(), logits_.end(),
                           [](const T& a, const T& b) { return to_float(a) < to_float(b); });
      const std::int32_t target = row.tokens[row.tokens.size() - row.num_scored + i];
      if (best - logits_.begin() != target) return false;
    }
    return true;
  }

  ModelRunner<T>& runner_;
  std::vector<T> logits_;
};

}  // namespace llmc
