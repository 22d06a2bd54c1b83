// Results of evaluation tasks as text and as records of the run log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/eval/task.h"
#include "llmc/io/run_log.h"

namespace llmc {

struct EvalResult {
  std::string task, file, protocol;
  std::int64_t examples = 0;
  std::vector<EvalMetric> metrics;
};

// A line of the run log: {"step": 100, "eval": "lambada", "file": "...", "examples": 5153,
// "accuracy": 0.3, ...}. It has no standard errors: they follow from the fraction and the number of
// examples.
LogRecord log_record(const EvalResult& result, std::int64_t step);

// "lambada FILE: accuracy 0.325, perplexity 35.1 (5153 examples)"
std::string summary(const EvalResult& result);

// One line per row. Spaces align all columns except the last one; rows have equal lengths.
std::string aligned_columns(const std::vector<std::vector<std::string>>& table);

// A line `# TASK FILE: protocol` per task, then the table: a line of titles and one line per
// metric. Spaces separate the columns; the file is the last one because its name can contain
// spaces.
std::string eval_table(const std::vector<EvalResult>& results);

}  // namespace llmc
