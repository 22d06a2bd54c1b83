// The interface of evaluations and samples to a model, in any dtype: one call per pass. ModelRunner
// has the passes of training, PromptRunner (infer/prompt_runner.h) those of generation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/models/batch_stage.h"
#include "llmc/nn/context.h"

namespace llmc {

class EvaluationPass {
 public:
  virtual ~EvaluationPass() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const RunShape& shape() const = 0;  // of the largest batch
  virtual Context& context() = 0;
  // Maximum number of sequences of a batch, however short they are.
  virtual std::int64_t max_sequences() const = 0;

  // Runs the model over a batch.
  virtual void run(const PreparedBatch& batch) = 0;

  // ---- results of the last run, in host memory; all pipeline ranks call these ----

  // (B*T) losses of the batch; 0 where a target is negative.
  virtual void read_losses(std::vector<float>& losses) = 0;
  // (V) logits of one row: of tokens, or of a classifier's labels.
  virtual void read_logits(std::int64_t row, std::vector<float>& logits) = 0;
  // (count, V) logits of the rows [first, first + count), at most shape().chunk_rows(). Only for a
  // model on one rank.
  virtual void read_logits(std::int64_t first, std::int64_t count, std::vector<float>& logits) = 0;
  // (rows, V) logits of single rows.
  virtual void read_logits_of(std::span<const std::int64_t> rows, std::vector<float>& logits) = 0;
};

}  // namespace llmc
