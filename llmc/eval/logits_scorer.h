// Runs a model over the rows of a task and returns the log-probabilities of the whole vocabulary
// for each scored token. row_scorer.h is faster if only the text's own tokens matter.
//
// Rows are run in their order, in batches of as many as the runner was built for, padded on the
// right. Logits are computed and copied to the host in pieces of many rows. Two scorers with
// runners of the same shape, dtype and weights return the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/eval/log_probs.h"
#include "llmc/eval/task.h"
#include "llmc/models/evaluation_pass.h"

namespace llmc {

class LogitsScorer : public LogProbSource {
 public:
  // Both must outlive the scorer. Nothing else may run the model until next() has returned null.
  // Throws if the model is spread over several ranks.
  LogitsScorer(EvaluationPass& runner, const EvalTask& task);

  std::int64_t vocabulary_size() const override { return runner_.config().vocabulary; }

  const TokenLogProbs* next() override;

 private:
  // Logits that exist on the host at a time: 64 MiB in fp32.
  static constexpr std::int64_t kMaxPieceLogits = std::int64_t{1} << 24;

  struct Scored {
    std::int64_t row;  // of the batch: the position before the token
    std::int32_t token;
  };

  // Runs the model over the next rows of the task.
  void run_batch();

  // Copies the logits of consecutive rows to the host, from scored token `index_` on.
  void read_piece();

  EvaluationPass& runner_;
  const EvalTask& task_;
  std::int64_t max_piece_;      // rows
  std::int64_t next_row_ = 0;   // first row of the task that no batch has had
  std::vector<Scored> scored_;  // scored tokens of the batch
  std::size_t index_ = 0, piece_begin_ = 0, piece_end_ = 0;  // indices of scored_
  std::vector<float> logits_;                                // (piece, V)
  std::vector<float> row_logits_, log_probs_;                // (V)
  TokenLogProbs current_;
};

}  // namespace llmc
