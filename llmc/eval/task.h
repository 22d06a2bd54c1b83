// What an evaluation task is: rows of tokens for a model to score, and what the scores amount to.
//
// Every task here asks one question of a model many times: how likely are these tokens after those?
// A row is such a question, so the model's side (row_scorer.h) knows no task, and a task knows no
// model: it is tokens before, and sums of logarithms after. A row has room for T + 1 tokens, since
// a model of T positions reads T of them and predicts each but the first.
//
//   perplexity.h        a text, token by token, in windows that overlap
//   multiple_choice.h   LAMBADA and HellaSwag: a few tokens after a context
//   tasks.h             the list of tasks of --eval, and the loop that runs them
//   report.h            the table
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace llmc {

// How likely are the last `scored` of these tokens, each given all before it?
struct EvalRow {
  std::vector<std::int32_t> tokens;
  std::int64_t scored = 0;
};

struct RowScore {
  double nll = 0;       // minus the sum of the natural logarithms of their probabilities
  bool greedy = false;  // each was the likeliest; only where the task asks
};

struct EvalMetric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error{};  // of shares of examples
};

class EvalTask {
 public:
  EvalTask(std::string name, std::string file) : name_(std::move(name)), file_(std::move(file)) {}
  virtual ~EvalTask() = default;
  EvalTask(const EvalTask&) = delete;
  EvalTask& operator=(const EvalTask&) = delete;

  const std::string& name() const { return name_; }
  const std::string& file() const { return file_; }

  // What exactly is measured, in a sentence or two.
  virtual std::string protocol() const = 0;
  // What the metrics are means of: scored tokens of a text, examples of a file.
  virtual std::int64_t examples() const = 0;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t row_length(std::int64_t i) const = 0;  // tokens
  virtual EvalRow row(std::int64_t i) const = 0;
  virtual bool asks_greedy() const { return false; }

  // `scores` of all rows, in their order.
  virtual std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const = 0;

 private:
  std::string name_, file_;
};

}  // namespace llmc
