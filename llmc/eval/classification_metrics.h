// Metrics of a classifier: accuracy, and precision, recall and F1 of each class and their means, as
// scikit-learn defines them with zero_division=0.
//
// For class c, with TP examples of c that are predicted as c, P predictions of c, and S examples of
// c (its support): precision = TP / P, recall = TP / S, F1 = 2 TP / (P + S), each 0 if its
// denominator is 0. The macro mean weights all classes equally, also those without examples or
// predictions; the weighted mean weights each class by its support.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/eval/task.h"

namespace llmc {

// How many examples of each class are predicted as each class.
class ConfusionMatrix {
 public:
  // Throws unless there are at least two classes.
  explicit ConfusionMatrix(std::int64_t classes);

  // Throws unless both are classes and `count` is not negative.
  void add(std::int64_t label, std::int64_t prediction, std::int64_t count = 1);

  std::int64_t classes() const { return classes_; }
  std::int64_t count(std::int64_t label, std::int64_t prediction) const {
    return counts_[static_cast<std::size_t>(label * classes_ + prediction)];
  }

  // (classes, classes): rows are labels, columns predictions. Ranks add their matrices.
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> counts_;
};

struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
};

struct ClassificationMetrics {
  std::int64_t examples = 0;
  double accuracy = 0;
  double standard_error = 0;            // of the accuracy a over n examples: sqrt(a (1 - a) / n)
  std::vector<ClassScores> scores{};    // of each class
  std::vector<std::int64_t> support{};  // of each class
  ClassScores macro{}, weighted{};
};

// Throws if the matrix has no examples.
ClassificationMetrics classification_metrics(const ConfusionMatrix& confusion);

// accuracy, macro_f1, weighted_f1, ... for the table and the log of all tasks (report.h).
std::vector<EvalMetric> eval_metrics(const ClassificationMetrics& metrics);

// A line with the accuracy, then a table with one line per class and one per mean. The class is the
// last column because its name can contain spaces.
std::string classification_table(const ClassificationMetrics& metrics,
                                 const std::vector<std::string>& label_names);

// The confusion matrix with the predicted classes as columns, by number, and a line per class.
std::string confusion_table(const ConfusionMatrix& confusion,
                            const std::vector<std::string>& label_names);

// The same values and the confusion matrix as one JSON object:
//
//   {"examples": 8, "accuracy": 0.75, "standard_error": 0.15,
//    "macro": {"precision": ..., "recall": ..., "f1": ...}, "weighted": {...},
//    "classes": [{"label": "negative", "support": 4, "precision": ..., ...}, ...],
//    "confusion_matrix": [[3, 1], [1, 3]]}
std::string classification_json(const ClassificationMetrics& metrics,
                                const ConfusionMatrix& confusion,
                                const std::vector<std::string>& label_names);

}  // namespace llmc
