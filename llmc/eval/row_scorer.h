// Scores the rows of an evaluation task with a model.
//
// A batch has rows of nearly the same length, padded on the right. Under causal attention the
// padding does not change a prediction before it, and targets of -1 keep it out of the losses. A
// batch has as many rows as fit into the memory that the model has for a batch. This number changes
// the shape of the matrix products and so only the last bits of a score; the same run returns the
// same bits. A row's score is summed on the host, in fp64, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/device/device.h"
#include "llmc/eval/task.h"
#include "llmc/models/evaluation_pass.h"

namespace llmc {

class RowScorer : public RowScoring {
 public:
  // Both must outlive the scorer. Batch i is scored by data rank i mod N of the runner's N data
  // ranks; all ranks of a tensor group have the same data rank.
  RowScorer(EvaluationPass& runner, Exchange& exchange) : runner_(runner), exchange_(exchange) {}

  // Returns the scores of all rows, in their order, on every rank. After every batch of each rank
  // it calls `on_batch(tokens so far, all tokens)`, where all ranks return the same; if that is
  // false, it stops and returns no scores.
  std::vector<RowScore> score(const EvalTask& task, const OnBatch& on_batch) override;

 private:
  struct RowBatch {
    std::vector<std::size_t> rows{};  // their numbers in the task, the longest first
    std::int64_t length = 0;          // tokens that the model reads of the longest
    std::int64_t tokens = 0;          // of all rows
  };

  std::vector<RowBatch> make_batches(const EvalTask& task) const;

  // The most sequences of a length that fit into a batch of the runner.
  std::int64_t max_sequences(std::int64_t length) const;

  // One rank of each tensor group has scored its rows; the others are 0 there.
  void all_reduce(std::vector<RowScore>& scores);

  std::vector<RowScore> score_batch(const EvalTask& task, const RowBatch& row_batch);

  // Index in the row of the position whose target is the first scored token: one before that token.
  static std::int64_t first_target(const EvalRow& row) {
    return static_cast<std::int64_t>(row.tokens.size()) - 1 - row.num_scored;
  }

  // Whether each scored token is the most likely one. Ranks read different numbers of logits: the
  // source keeps the embeddings, which these need, between passes (weight_buckets.h). Among equal
  // logits the one with the smallest id counts as the most likely.
  bool all_greedy(const EvalRow& row, std::int64_t begin);

  EvaluationPass& runner_;
  Exchange& exchange_;
  std::vector<float> logits_;
};

}  // namespace llmc
