#include "llmc/eval/classification_metrics.h"

#include <cmath>
#include <cstddef>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/eval/report.h"

namespace llmc {

ConfusionMatrix::ConfusionMatrix(std::int64_t classes) : classes_(classes) {
  require(classes >= 2, "a classifier has at least two classes");
  counts_.resize(static_cast<std::size_t>(classes * classes));
}

void ConfusionMatrix::add(std::int64_t label, std::int64_t prediction, std::int64_t count) {
  for (const std::int64_t value : {label, prediction}) {
    if (value >= 0 && value < classes_) continue;
    fail("class " + std::to_string(value) + " is not one of 0 to " + std::to_string(classes_ - 1));
  }
  require(count >= 0, "a number of examples is negative");
  counts_[static_cast<std::size_t>(label * classes_ + prediction)] += count;
}

namespace {

double quotient_or_zero(std::int64_t numerator, std::int64_t denominator) {
  return denominator == 0 ? 0 : static_cast<double>(numerator) / static_cast<double>(denominator);
}

void add_scores(ClassScores& sum, const ClassScores& scores, double weight) {
  sum.precision += weight * scores.precision;
  sum.recall += weight * scores.recall;
  sum.f1 += weight * scores.f1;
}

}  // namespace

ClassificationMetrics classification_metrics(const ConfusionMatrix& confusion) {
  ClassificationMetrics metrics;
  std::int64_t num_correct = 0;
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    std::int64_t support = 0, predicted = 0;
    for (std::int64_t other = 0; other < confusion.classes(); ++other) {
      support += confusion.count(c, other);
      predicted += confusion.count(other, c);
    }
    const std::int64_t correct = confusion.count(c, c);
    metrics.scores.push_back({.precision = quotient_or_zero(correct, predicted),
                              .recall = quotient_or_zero(correct, support),
                              .f1 = quotient_or_zero(2 * correct, predicted + support)});
    metrics.support.push_back(support);
    metrics.examples += support;
    num_correct += correct;
  }
  require(metrics.examples > 0, "metrics of a classifier need at least one example");
  const auto n = static_cast<double>(metrics.examples);
  metrics.accuracy = static_cast<double>(num_correct) / n;
  metrics.standard_error = std::sqrt(metrics.accuracy * (1 - metrics.accuracy) / n);
  for (std::size_t c = 0; c < metrics.scores.size(); ++c) {
    add_scores(metrics.macro, metrics.scores[c], 1 / static_cast<double>(metrics.scores.size()));
    add_scores(metrics.weighted, metrics.scores[c], static_cast<double>(metrics.support[c]) / n);
  }
  return metrics;
}

std::vector<EvalMetric> eval_metrics(const ClassificationMetrics& metrics) {
  return {{"accuracy", metrics.accuracy, metrics.standard_error},
          {"macro_precision", metrics.macro.precision},
          {"macro_recall", metrics.macro.recall},
          {"macro_f1", metrics.macro.f1},
          {"weighted_precision", metrics.weighted.precision},
          {"weighted_recall", metrics.weighted.recall},
          {"weighted_f1", metrics.weighted.f1}};
}

std::string classification_table(const ClassificationMetrics& metrics,
                                 const std::vector<std::string>& label_names) {
  require(label_names.size() == metrics.scores.size(), "each class needs a name");
  std::vector<std::vector<std::string>> table = {{"precision", "recall", "f1", "support", "class"}};
  const auto add_row = [&](const ClassScores& scores, std::int64_t support,
                           const std::string& name) {
    const auto text = [](double value) { return number_text("%.4f", value); };
    table.push_back({text(scores.precision), text(scores.recall), text(scores.f1),
                     std::to_string(support), name});
  };
  for (std::size_t c = 0; c < label_names.size(); ++c) {
    add_row(metrics.scores[c], metrics.support[c], label_names[c]);
  }
  add_row(metrics.macro, metrics.examples, "(macro mean)");
  add_row(metrics.weighted, metrics.examples, "(weighted mean)");
  return "accuracy " + number_text("%.4f", metrics.accuracy) + ", standard error " +
         number_text("%.4f", metrics.standard_error) + " (" + std::to_string(metrics.examples) +
         (metrics.examples == 1 ? " example" : " examples") + ")\n" + aligned_columns(table);
}

std::string confusion_table(const ConfusionMatrix& confusion,
                            const std::vector<std::string>& label_names) {
  std::vector<std::vector<std::string>> table(1);
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    table.front().push_back("as " + std::to_string(c));
  }
  table.front().push_back("class");
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    std::vector<std::string> row;
    for (std::int64_t other = 0; other < confusion.classes(); ++other) {
      row.push_back(std::to_string(confusion.count(c, other)));
    }
    row.push_back(std::to_string(c) + " " + label_names[static_cast<std::size_t>(c)]);
    table.push_back(std::move(row));
  }
  return aligned_columns(table);
}

std::string classification_json(const ClassificationMetrics& metrics,
                                const ConfusionMatrix& confusion,
                                const std::vector<std::string>& label_names) {
  require(label_names.size() == metrics.scores.size(), "each class needs a name");
  const auto add_to = [](Json& object, const ClassScores& scores) {
    object["precision"] = scores.precision;
    object["recall"] = scores.recall;
    object["f1"] = scores.f1;
  };
  Json json = {{"examples", metrics.examples},
               {"accuracy", metrics.accuracy},
               {"standard_error", metrics.standard_error},
               {"macro", Json::object()},
               {"weighted", Json::object()},
               {"classes", Json::array()},
               {"confusion_matrix", Json::array()}};
  add_to(json["macro"], metrics.macro);
  add_to(json["weighted"], metrics.weighted);
  for (std::size_t c = 0; c < label_names.size(); ++c) {
    Json one = {{"label", label_names[c]}, {"support", metrics.support[c]}};
    add_to(one, metrics.scores[c]);
    json["classes"].push_back(one);
    Json row = Json::array();
    for (std::int64_t other = 0; other < confusion.classes(); ++other) {
      row.push_back(confusion.count(static_cast<std::int64_t>(c), other));
    }
    json["confusion_matrix"].push_back(row);
  }
  return json.dump();
}

}  // namespace llmc
