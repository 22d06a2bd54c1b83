// Error measures and tolerances: defined once, for tests and benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"

namespace llmc::oracle {

// Any number, including bf16 and fp16, as double.
template <class T>
double as_double(const T& x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(x);
  } else {
    return static_cast<double>(to_float(x));
  }
}

// ||actual - expected|| / ||expected||. A NaN in either returns NaN, which fails each comparison
// with a tolerance. If `expected` is all zero: 0 if `actual` is too, else infinity (use
// max_abs_error for such tensors).
template <class A, class B>
double relative_l2(const std::vector<A>& actual, const std::vector<B>& expected) {
  require(actual.size() == expected.size(), "relative_l2: the vectors differ in length");
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double w = as_double(expected[i]);
    const double d = as_double(actual[i]) - w;
    error += d * d;
    norm += w * w;
  }
  if (norm == 0.0) return error == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
  return std::sqrt(error / norm);
}

// max |actual - expected|; NaN if any difference is NaN.
template <class A, class B>
double max_abs_error(const std::vector<A>& actual, const std::vector<B>& expected) {
  require(actual.size() == expected.size(), "max_abs_error: the vectors differ in length");
  double max_error = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double d = std::abs(as_double(actual[i]) - as_double(expected[i]));
    if (std::isnan(d)) return d;
    max_error = std::max(max_error, d);
  }
  return max_error;
}

// Largest relative error of rounding to T: bf16 has 8 significant bits, fp16 11, fp32 24. It is
// also the spacing of T's numbers just below 1.
template <class T>
inline constexpr double kRounding = std::is_same_v<T, float>  ? 0x1p-24
                                    : std::is_same_v<T, bf16> ? 0x1p-8
                                                              : 0x1p-11;

// Relative L2 error allowed for a result whose arithmetic is fp32 and which is stored as T. One
// rounding to half precision costs 0.72 kRounding / sqrt(3) of a tensor's norm. kRounding is
// allowed, which leaves at least as much again for the arithmetic before it. A sum of `terms`
// numbers of either sign has a rounding error of about sqrt(terms)/2 units of 2^-24; twice that is
// allowed.
template <class T>
double tolerance(std::int64_t terms = 1) {
  const double sum = (4 + std::sqrt(static_cast<double>(terms))) * kRounding<float>;
  return sizeof(T) < 4 ? kRounding<T> + sum : std::max(1e-6, sum);
}

}  // namespace llmc::oracle
