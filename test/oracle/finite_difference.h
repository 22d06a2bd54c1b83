// Central finite differences, which check the oracle's own gradients.
#pragma once

#include <cmath>
#include <vector>

#include "test/oracle/compare.h"
#include "test/oracle/ops.h"

namespace llmc::oracle {

// sum a[i] * b[i].
inline double dot(const Vec& a, const Vec& b) {
  expect_size("b", b.size(), static_cast<Index>(a.size()));
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// d f / d x[i] for every i in `indices` (every element if empty), by the five-point stencil
// (f(x - 2h) - 8 f(x - h) + 8 f(x + h) - f(x + 2h)) / 12h. Its error is h^4 f'''''/30 plus about
// 1e-16 |f| / h of rounding; with h = 1e-3 both are near 1e-12 for smooth f of order one. `f` takes
// no argument and reads x, which is changed in place and restored.
template <class F>
Vec finite_difference(Vec& x, const F& f, std::vector<std::size_t> indices = {}, double h = 1e-3) {
  if (indices.empty()) {
    indices.resize(x.size());
    std::iota(indices.begin(), indices.end(), std::size_t{0});
  }
  Vec gradient;
  for (const std::size_t i : indices) {
    const double original = x[i];
    const auto value_at = [&](double step) {
      x[i] = original + step;
      return f();
    };
    gradient.push_back((value_at(-2 * h) - 8 * value_at(-h) + 8 * value_at(h) - value_at(2 * h)) /
                       (12 * h));
    x[i] = original;
  }
  return gradient;
}

// Tolerance of five-point differences, whose error is about 1e-12 for functions of order one.
inline constexpr double kDifferenceTolerance = 1e-9;

// The relative error of `gradient`, which should be the gradient of f(), a function that reads x.
template <class F>
double gradient_error(const Vec& gradient, Vec& x, const F& f) {
  return relative_l2(gradient, finite_difference(x, f));
}

}  // namespace llmc::oracle
