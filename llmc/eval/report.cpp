#include "llmc/eval/report.h"

#include <algorithm>
#include <cstddef>

#include "llmc/base/number_text.h"

namespace llmc {

namespace {

std::string metric_text(double value) {
  return number_text("%.6g", value);
}

std::vector<std::string> table_row(const EvalResult& result, const EvalMetric& metric) {
  return {result.task,
          metric.name,
          metric_text(metric.value),
          metric.standard_error ? metric_text(*metric.standard_error) : "-",
          std::to_string(result.examples),
          result.file};
}

}  // namespace

LogRecord log_record(const EvalResult& result, std::int64_t step) {
  LogRecord record = {
      {"step", step}, {"eval", result.task}, {"file", result.file}, {"examples", result.examples}};
  for (const EvalMetric& metric : result.metrics) record.emplace_back(metric.name, metric.value);
  return record;
}

std::string summary(const EvalResult& result) {
  std::string text = result.task + " " + result.file + ":";
  for (const EvalMetric& metric : result.metrics) {
    text += " " + metric.name + " " + metric_text(metric.value) + ",";
  }
  text.pop_back();
  return text + " (" + std::to_string(result.examples) + " examples)";
}

std::string aligned_columns(const std::vector<std::vector<std::string>>& table) {
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& row : table) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string eval_table(const std::vector<EvalResult>& results) {
  std::string text;
  std::vector<std::vector<std::string>> table = {
      {"task", "metric", "value", "std_err", "examples", "file"}};
  for (const EvalResult& result : results) {
    text += "# " + result.task + " " + result.file + ": " + result.protocol + "\n";
    for (const EvalMetric& metric : result.metrics) {
      table.push_back(table_row(result, metric));
    }
  }
  return text + aligned_columns(table);
}

}  // namespace llmc
