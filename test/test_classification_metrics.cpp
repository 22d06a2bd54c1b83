// Metrics of a classifier: against a plain definition, and against scikit-learn.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/eval/classification_metrics.h"
#include "llmc/eval/report.h"
#include "test/eval_samples.h"
#include "test/oracle/transformers.h"
#include "test/python.h"
#include "test/support.h"
#include "test/write_file.h"

TEST_SUITE_BEGIN("classification_metrics");

using namespace llmc;
using namespace llmc_test;

namespace {

using Matrix = std::vector<std::vector<std::int64_t>>;

ConfusionMatrix confusion_of(const Matrix& matrix) {
  const auto n = static_cast<std::int64_t>(matrix.size());
  ConfusionMatrix confusion(n);
  for (std::int64_t label = 0; label < n; ++label) {
    for (std::int64_t prediction = 0; prediction < n; ++prediction) {
      confusion.add(label, prediction, matrix[label][prediction]);
    }
  }
  return confusion;
}

// 2 to 9 classes; some classes have no examples, are never predicted, or both. At least one
// example.
Matrix random_matrix(std::mt19937_64& bits) {
  const std::size_t n = 2 + bits() % 8;
  std::vector<bool> is_empty_row(n), is_empty_column(n);
  for (std::size_t c = 0; c < n; ++c) {
    is_empty_row[c] = bits() % 5 == 0;
    is_empty_column[c] = bits() % 5 == 0;
  }
  Matrix matrix(n, std::vector<std::int64_t>(n, 0));
  std::int64_t total = 0;
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < n; ++column) {
      const auto count = static_cast<std::int64_t>(bits() % 3 == 0 ? 0 : bits() % 40);
      if (is_empty_row[row] || is_empty_column[column]) continue;
      total += matrix[row][column] = count;
    }
  }
  if (total == 0) matrix[n - 1][0] = 1;
  return matrix;
}

// The scores by their definition, from a list of examples.
ClassificationMetrics plain_metrics(const Matrix& matrix) {
  std::vector<std::pair<std::size_t, std::size_t>> examples;  // label, prediction
  for (std::size_t label = 0; label < matrix.size(); ++label) {
    for (std::size_t prediction = 0; prediction < matrix.size(); ++prediction) {
      examples.insert(examples.end(), static_cast<std::size_t>(matrix[label][prediction]),
                      {label, prediction});
    }
  }
  ClassificationMetrics out;
  const auto n = static_cast<double>(examples.size());
  double num_correct = 0;
  for (const auto& [label, prediction] : examples) num_correct += label == prediction ? 1 : 0;
  out.accuracy = num_correct / n;
  out.standard_error = std::sqrt(out.accuracy * (1 - out.accuracy) / n);
  for (std::size_t c = 0; c < matrix.size(); ++c) {
    double correct = 0, labelled = 0, predicted = 0;
    for (const auto& [label, prediction] : examples) {
      correct += label == c && prediction == c ? 1 : 0;
      labelled += label == c ? 1 : 0;
      predicted += prediction == c ? 1 : 0;
    }
    ClassScores scores;
    if (predicted > 0) scores.precision = correct / predicted;
    if (labelled > 0) scores.recall = correct / labelled;
    // The harmonic mean of both.
    if (correct > 0) scores.f1 = 2 / (1 / scores.precision + 1 / scores.recall);
    out.scores.push_back(scores);
    out.support.push_back(static_cast<std::int64_t>(labelled));
  }
  for (std::size_t c = 0; c < matrix.size(); ++c) {
    const double share = static_cast<double>(out.support[c]) / n;
    const ClassScores& scores = out.scores[c];
    out.macro.precision += scores.precision / static_cast<double>(matrix.size());
    out.macro.recall += scores.recall / static_cast<double>(matrix.size());
    out.macro.f1 += scores.f1 / static_cast<double>(matrix.size());
    out.weighted.precision += scores.precision * share;
    out.weighted.recall += scores.recall * share;
    out.weighted.f1 += scores.f1 * share;
  }
  return out;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-14;
}

bool near(const ClassScores& a, const ClassScores& b) {
  return near(a.precision, b.precision) && near(a.recall, b.recall) && near(a.f1, b.f1);
}

// Checks our metrics against a line of classification_scores.py.
void check_scores(const std::string& line) {
  CAPTURE(line);
  const Json json = parse_json(line, "scores");
  Matrix matrix;
  for (const Json& row : json["matrix"]) matrix.push_back(json_sizes(row, "matrix"));
  const ClassificationMetrics metrics = classification_metrics(confusion_of(matrix));
  CHECK(near(metrics.accuracy, json["accuracy"].number()));
  const auto scores_of = [](const Json& list) {
    return ClassScores{list[0].number(), list[1].number(), list[2].number()};
  };
  CHECK(near(metrics.macro, scores_of(json["macro"])));
  CHECK(near(metrics.weighted, scores_of(json["weighted"])));
  const Json& classes = json["classes"];
  REQUIRE(classes.size() == 4);
  REQUIRE(metrics.scores.size() == classes[0].size());
  for (std::size_t c = 0; c < metrics.scores.size(); ++c) {
    CHECK(near(metrics.scores[c],
               {classes[0][c].number(), classes[1][c].number(), classes[2][c].number()}));
    CHECK(static_cast<double>(metrics.support[c]) == classes[3][c].number());
  }
}

// 3 of 4 examples of class 0 and 4 of 6 of class 1 are right; class 2 has none, and is predicted
// once.
const Matrix kSmall = {{3, 1, 0}, {1, 4, 1}, {0, 0, 0}};

}  // namespace

TEST_CASE("metrics match the definition on random matrices") {
  std::mt19937_64 bits(1);
  for (int i = 0; i < 1'000; ++i) {
    const Matrix matrix = random_matrix(bits);
    const ClassificationMetrics metrics = classification_metrics(confusion_of(matrix));
    const ClassificationMetrics expected = plain_metrics(matrix);
    CHECK(near(metrics.accuracy, expected.accuracy));
    CHECK(near(metrics.standard_error, expected.standard_error));
    CHECK(near(metrics.macro, expected.macro));
    CHECK(near(metrics.weighted, expected.weighted));
    CHECK(metrics.support == expected.support);
    for (std::size_t c = 0; c < matrix.size(); ++c) {
      CHECK(near(metrics.scores[c], expected.scores[c]));
    }
  }
}

TEST_CASE("metrics match recorded results of scikit-learn") {
  const std::string file = read_file(root_dir() + "/test/oracle/fixtures/classification.jsonl");
  int num_matrices = 0;
  for (Lines lines(file); lines.next_filled(); ++num_matrices) {
    check_scores(std::string(lines.line()));
  }
  CHECK(num_matrices == 12);
}

TEST_CASE("metrics match scikit-learn on 1000 random matrices") {
  if (tiny_shapes()) return skip("too slow in this build, and the library is not under test");
  if (!python_has("sklearn, numpy")) return skip("no Python with sklearn, numpy (set PYTHON)");
  std::mt19937_64 bits(2);
  std::string input;
  for (int i = 0; i < 1'000; ++i) {
    Json rows = Json::array();
    for (const auto& row : random_matrix(bits)) rows.push_back(row);
    input += rows.dump() + "\n";
  }
  const TemporaryDirectory directory;
  write(directory.file("matrices"), input);
  using oracle::shell_quoted;
  const std::string command = shell_quoted(python()) + " " +
                              shell_quoted(root_dir() + "/test/oracle/classification_scores.py") +
                              " < " + shell_quoted(directory.file("matrices")) + " > " +
                              shell_quoted(directory.file("scores"));
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string scores = read_file(directory.file("scores"));
  int num_matrices = 0;
  for (Lines lines(scores); lines.next_filled(); ++num_matrices) {
    check_scores(std::string(lines.line()));
  }
  CHECK(num_matrices == 1'000);
}

TEST_CASE("examples are added one by one or by their number") {
  ConfusionMatrix confusion(2);
  confusion.add(0, 1);
  confusion.add(0, 1);
  confusion.add(1, 0, 3);
  CHECK(confusion.counts() == std::vector<std::int64_t>{0, 2, 3, 0});
  CHECK(confusion.count(0, 1) == 2);
  for (const auto& [label, prediction] : {std::pair{2, 0}, {0, 2}, {-1, 0}, {0, -1}}) {
    CHECK(contains(complaint([&] { confusion.add(label, prediction); }), "not one of 0 to 1"));
  }
  CHECK(contains(complaint([&] { confusion.add(0, 0, -1); }), "negative"));
  CHECK(contains(complaint([] { ConfusionMatrix(1); }), "at least two classes"));
  CHECK(contains(complaint([] { classification_metrics(ConfusionMatrix(2)); }),
                 "at least one example"));
}

TEST_CASE("the table has a line per class and mean, with the class as the last column") {
  const ClassificationMetrics metrics = classification_metrics(confusion_of(kSmall));
  CHECK(classification_table(metrics, {"negative", "so so", "positive"}) ==
        "accuracy 0.7000, standard error 0.1449 (10 examples)\n"
        "precision  recall  f1      support  class\n"
        "0.7500     0.7500  0.7500  4        negative\n"
        "0.8000     0.6667  0.7273  6        so so\n"
        "0.0000     0.0000  0.0000  0        positive\n"
        "0.5167     0.4722  0.4924  10       (macro mean)\n"
        "0.7800     0.7000  0.7364  10       (weighted mean)\n");
  CHECK(contains(complaint([&] { classification_table(metrics, {"a", "b"}); }), "needs a name"));
}

TEST_CASE("the JSON has the values of the metrics and the matrix") {
  const ConfusionMatrix confusion = confusion_of(kSmall);
  const ClassificationMetrics metrics = classification_metrics(confusion);
  const Json json = parse_json(classification_json(metrics, confusion, {"n", "\"s\"", "p"}), "it",
                               KeyOrder::as_written);
  CHECK(json["examples"] == Json(10));
  CHECK(json["accuracy"].number() == metrics.accuracy);
  CHECK(json["standard_error"].number() == metrics.standard_error);
  CHECK(json["macro"] == Json({{"precision", metrics.macro.precision},
                               {"recall", metrics.macro.recall},
                               {"f1", metrics.macro.f1}}));
  CHECK(json["weighted"]["f1"].number() == metrics.weighted.f1);
  CHECK(json["classes"].size() == 3);
  CHECK(json["classes"][1] == Json({{"label", "\"s\""},
                                    {"support", 6},
                                    {"precision", metrics.scores[1].precision},
                                    {"recall", metrics.scores[1].recall},
                                    {"f1", metrics.scores[1].f1}}));
  CHECK(json["confusion_matrix"].dump() == "[[3,1,0],[1,4,1],[0,0,0]]");
}

TEST_CASE("the metrics are reported like those of a task") {
  const ClassificationMetrics metrics = classification_metrics(confusion_of(kSmall));
  const std::vector<EvalMetric> list = eval_metrics(metrics);
  CHECK(metric(list, "accuracy") == metrics.accuracy);
  CHECK(*list[0].standard_error == doctest::Approx(std::sqrt(0.7 * 0.3 / 10)));
  CHECK(metric(list, "macro_f1") == metrics.macro.f1);
  CHECK(metric(list, "weighted_precision") == metrics.weighted.precision);
  CHECK(contains(eval_table({{"classifier", "x.jsonl", "how", 10, list}}),
                 "classifier  weighted_recall     0.7"));
}

TEST_SUITE_END();
