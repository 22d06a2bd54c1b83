// Shared parts of the cases of the classifier: shapes, inputs, and the oracle's results.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "dev/harness/op_case.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/classifier_row.h"
#include "test/oracle/ops.h"

namespace llmc_dev::classifier {

namespace oracle = llmc::oracle;
using llmc::ceil_div;

constexpr std::int64_t kSampledRows = 64;

struct Shape {
  std::int64_t rows, V, Vp;
  bool fp16 = true;
  std::string text() const { return by(rows, V) + " of " + std::to_string(Vp); }
  double n() const { return static_cast<double>(rows * Vp); }
};

// Gradient of the mean loss with respect to one row's loss. fp16 needs a loss scale: without it
// most of d_logits would underflow.
template <class T>
float gradient_of_row(Shape s) {
  constexpr float kLossScale = std::is_same_v<T, fp16> ? 4096.0f : 1.0f;
  return kLossScale / static_cast<float>(s.rows);
}

// Number of terms of a row's sum, for its tolerance: a thread adds its share of the row, and the
// block adds the threads' sums in 10 steps. All terms are positive.
template <class T>
std::int64_t sum_terms(std::int64_t Vp) {
  const std::int64_t vectors = ceil_div(Vp, llmc::kVecSize<T>);
  return ceil_div(vectors, llmc::classifier_threads<T>(Vp)) * llmc::kVecSize<T> + 10;
}

// Writes NaN to the padding of each row, so that a read of it is detected. Large arrays keep random
// padding, because the host would have to copy them before each run.
template <class T>
void set_padding(DeviceArray<T>& logits, std::int64_t V, std::int64_t Vp) {
  if (logits.size() > 1 << 20) return;
  std::vector<float> values;
  for (const double x : logits.values()) {
    const auto column = static_cast<std::int64_t>(values.size()) % Vp;
    values.push_back(column < V ? static_cast<float>(x) : NAN);
  }
  logits.begin_with(values);
}

// The last row's target is the last column, which is often past the last whole vector. If `ignore`,
// row 1 of three or more rows has no target. Indices below 2^24 are exact as floats.
inline void set_targets(DeviceArray<std::int32_t>& targets, std::int64_t V, bool ignore) {
  std::vector<float> ids;
  for (const double id : targets.values()) ids.push_back(static_cast<float>(id));
  if (ignore && ids.size() > 2) ids[1] = -1;
  ids.back() = static_cast<float>(V - 1);
  targets.begin_with(ids);
}

// The oracle's results for some rows.
struct Expected {
  std::vector<std::int64_t> rows;
  oracle::Ints ids;
  oracle::Vec losses, d_logits;  // d_logits: V columns
  double largest = 1;            // largest magnitude of a logit, at least 1
  double dloss = 0;              // that of a row with a target
  bool is_single = false;  // one column: losses and gradients are differences of equal numbers

  // `logits` are those of the rows `which`, V columns.
  Expected(std::vector<std::int64_t> which, const oracle::Vec& logits,
           const DeviceArray<std::int32_t>& targets, std::int64_t V, double dloss)
      : rows(std::move(which)), dloss(dloss), is_single(V == 1) {
    const auto count = static_cast<std::int64_t>(rows.size());
    oracle::Ints columns;
    oracle::Vec weights;
    for (const std::int64_t r : rows) {
      ids.push_back(targets.stored(r, 1)[0]);
      columns.push_back(std::max<std::int64_t>(0, ids.back()));
      weights.push_back(ids.back() < 0 ? 0 : dloss);
    }
    auto y = oracle::classifier(logits, columns, count, V, weights);
    losses = std::move(y.row_loss);
    d_logits = std::move(y.d_logits);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) losses[i] = 0;
    }
    for (const double x : logits) largest = std::max(largest, std::abs(x));
  }

  // Compares the losses of all rows together, and each of them. A loss is a sum of numbers as large
  // as the logits, with about 8 roundings of 2^-24. A row without a target has a loss of exactly 0.
  void compare_losses(std::vector<Comparison>& all, oracle::Vec actual, std::int64_t terms) const {
    oracle::Vec expected = losses;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (is_single && ids[i] >= 0) {
        actual[i] += largest;
        expected[i] += largest;
      }
      const double allowed = expected[i] == 0 ? 0 : 0x1p-21 * largest / std::abs(expected[i]);
      all.push_back(
          compare("loss of row " + std::to_string(rows[i]), {actual[i]}, {expected[i]}, allowed));
    }
    all.push_back(compare("losses", actual, expected, tolerance<float>(terms)));
  }

  // Gradients of the rows, Vp columns. Those of the padding, and of rows without a target, are
  // exactly 0.
  template <class T>
  void compare_gradients(std::vector<Comparison>& all, const oracle::Vec& actual, std::int64_t V,
                         std::int64_t Vp) const {
    oracle::Vec gradients, zeros;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = actual.begin() + static_cast<std::int64_t>(i) * Vp;
      gradients.insert(gradients.end(), row, row + V);
      zeros.insert(zeros.end(), row + (ids[i] < 0 ? 0 : V), row + Vp);
    }
    oracle::Vec expected = d_logits;
    if (is_single) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        gradients[i] += dloss;
        expected[i] += dloss;
      }
    }
    all.push_back(compare("d_logits", gradients, expected, tolerance<T>(sum_terms<T>(Vp))));
    all.push_back(compare("zeros", zeros, oracle::Vec(zeros.size()), 0));
  }
};

// The oracle's results for some rows of logits (s.rows, s.Vp).
template <class T>
Expected expected_of(Shape s, const DeviceArray<T>& logits,
                     const DeviceArray<std::int32_t>& targets, double dloss) {
  const auto rows = sample(s.rows, kSampledRows);
  oracle::Vec values;
  for (const std::int64_t r : rows) {
    const oracle::Vec row = logits.values(r * s.Vp, s.V);
    values.insert(values.end(), row.begin(), row.end());
  }
  return {rows, values, targets, s.V, dloss};
}

}  // namespace llmc_dev::classifier
