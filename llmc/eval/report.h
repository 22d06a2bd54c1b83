// Results of evaluation tasks as text and as records of the run log.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/number_text.h"
#include "llmc/eval/task.h"
#include "llmc/io/run_log.h"

namespace llmc {

struct EvalResult {
  std::string task, file, protocol;
  std::int64_t examples = 0;
  std::vector<EvalMetric> metrics;
};

namespace eval_report_detail {

inline std::string metric_text(double value) {
  return number_text("%.6g", value);
}

inline std::vector<std::string> table_row(const EvalResult& result, const EvalMetric& metric) {
  return {result.task,
          metric.name,
          metric_text(metric.value),
          metric.standard_error ? metric_text(*metric.standard_error) : "-",
          std::to_string(result.examples),
          result.file};
}

}  // namespace eval_report_detail

// A line of the run log: {"step": 100, "eval": "lambada", "file": "...", "examples": 5153,
// "accuracy": 0.3, ...}. It has no standard errors: they follow from the fraction and the number of
// examples.
inline LogRecord log_record(const EvalResult& result, std::int64_t step) {
  LogRecord record = {
      {"step", step}, {"eval", result.task}, {"file", result.file}, {"examples", result.examples}};
  for (const EvalMetric& metric : result.metrics) record.emplace_back(metric.name, metric.value);
  return record;
}

// "lambada FILE: accuracy 0.325, perplexity 35.1 (5153 examples)"
inline std::string summary(const EvalResult& result) {
  std::string text = result.task + " " + result.file + ":";
  for (const EvalMetric& metric : result.metrics) {
    text += " " + metric.name + " " + eval_report_detail::metric_text(metric.value) + ",";
  }
  text.pop_back();
  return text + " (" + std::to_string(result.examples) + " examples)";
}

// A line `# TASK FILE: protocol` per task, then the table: a line of titles and one line per
// metric. Spaces separate the columns; the file is the last one because its name can contain
// spaces.
inline std::string eval_table(const std::vector<EvalResult>& results) {
  std::string text;
  std::vector<std::vector<std::string>> table = {
      {"task", "metric", "value", "std_err", "examples", "file"}};
  for (const EvalResult& result : results) {
    text += "# " + result.task + " " + result.file + ": " + result.protocol + "\n";
    for (const EvalMetric& metric : result.metrics) {
      table.push_back(eval_report_detail::table_row(result, metric));
    }
  }
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& row : table) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : table) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace llmc
