// The interface of evaluation tasks: rows of tokens for a model to score, and metrics of the
// scores.
//
// Every task asks one question of a model many times: how likely are these tokens after those? A
// row is such a question. So the code that runs the model (row_scorer.h) knows no task. A task
// knows no model: it provides tokens and receives sums of log-probabilities. A row has T + 1 tokens
// or fewer, because a model of T positions reads T of them and predicts all except the first.
//
//   perplexity.h        a text, token by token, in windows that overlap
//   multiple_choice.h   LAMBADA, HellaSwag and RACE: a few tokens after a context
//   tasks.h             a list of tasks, and the loop that runs them
//   report.h            the table
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace llmc {

// One question: how likely are the last `num_scored` of these tokens, each after all tokens before
// it?
struct EvalRow {
  std::vector<std::int32_t> tokens;
  std::int64_t num_scored = 0;
};

struct RowScore {
  double nll = 0;          // minus the sum of the natural logarithms of the probabilities
  bool greedy = false;     // each token is the most likely one; only if needs_greedy()
  double nll_squares = 0;  // sum over tokens of the squares of their nll
};

struct EvalMetric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error{};  // empty if it is unknown
};

class EvalTask {
 public:
  EvalTask(std::string name, std::string file) : name_(std::move(name)), file_(std::move(file)) {}
  virtual ~EvalTask() = default;
  EvalTask(const EvalTask&) = delete;
  EvalTask& operator=(const EvalTask&) = delete;

  const std::string& name() const { return name_; }
  const std::string& file() const { return file_; }

  // A description of what exactly is measured, in one or two sentences.
  virtual std::string protocol() const = 0;
  // Number of items over which the metrics are means: scored tokens of a text, examples of a file.
  virtual std::int64_t examples() const = 0;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t row_length(std::int64_t i) const = 0;  // tokens
  virtual EvalRow row(std::int64_t i) const = 0;
  virtual bool needs_greedy() const { return false; }

  // `scores` has the score of each row, in order.
  virtual std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const = 0;

 private:
  std::string name_, file_;
};

// Sums the scores of a task's rows from the nll of each scored token.
class RowScoreSums {
 public:
  // The task must outlive the object.
  explicit RowScoreSums(const EvalTask& task) : task_(task) {}

  // Adds the nll, in nats, of the next scored token, in the order of the rows.
  void add(double nll);

  // The scores of the rows so far, without `greedy`.
  std::span<const RowScore> scores() const { return scores_; }

 private:
  const EvalTask& task_;
  std::vector<RowScore> scores_;
  std::int64_t num_missing_ = 0;  // scored tokens of the last row that were not added
};

// Scores the rows of tasks with some model. RowScorer (row_scorer.h) does so with a ModelRunner.
class RowScoring {
 public:
  // Called with the tokens scored so far and all tokens of the task. Returns false to stop.
  using OnBatch = std::function<bool(std::int64_t done, std::int64_t total)>;

  RowScoring() = default;
  virtual ~RowScoring() = default;
  RowScoring(const RowScoring&) = delete;
  RowScoring& operator=(const RowScoring&) = delete;

  // Returns the scores of all rows of the task, in their order. Calls `on_batch` after each batch
  // of rows; if that is false, it stops and returns no scores.
  virtual std::vector<RowScore> score(const EvalTask& task, const OnBatch& on_batch) = 0;
};

}  // namespace llmc
