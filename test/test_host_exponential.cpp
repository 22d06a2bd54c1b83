// The exponentials of the host against the C library's in double precision.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "llmc/device/host/exponential.h"
#include "llmc/device/host/simd.h"

namespace {

// Distance of `value` from `exact` in units of the last place of fp32 at `exact`.
double units_in_last_place(float value, double exact) {
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::fabs(static_cast<double>(value) - exact) / std::ldexp(1.0, exponent - 23);
}

template <class Function, class Exact>
double max_error(Function function, Exact exact, double first, double last) {
  constexpr int kPoints = 400000;
  double error = 0;
  for (int i = 0; i <= kPoints; ++i) {
    const float x = static_cast<float>(first + (last - first) * i / kPoints);
    error = std::max(error, units_in_last_place(function(x), exact(static_cast<double>(x))));
  }
  return error;
}

float exp2_of(float x) {
  return llmc::host::exp2(x);
}
float exp_of(float x) {
  return llmc::host::exp(x);
}

// Vectors of N numbers from `first` on have the bits of the numbers.
template <int N>
void check_vectors(float first) {
  using Register = typename llmc::host::Simd<N>::Float;
  Register x{};
  for (int k = 0; k < N; ++k) x[k] = first + 0.04f * static_cast<float>(k);
  const Register powers = llmc::host::exp2(x), exponentials = llmc::host::exp(x);
  const Register approximate = llmc::host::fast_exp2(x);
  for (int k = 0; k < N; ++k) {
    CHECK(powers[k] == exp2_of(x[k]));
    CHECK(approximate[k] == llmc::host::fast_exp2(x[k]));
    CHECK(exponentials[k] == exp_of(x[k]));
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_SUITE("host exponential") {
  // The polynomial's last addition and the multiplication by a power of two round; the argument of
  // the polynomial has a rounding error of its own.
  TEST_CASE("2^x is accurate to 1.5 units in the last place, also below the normal range") {
    const auto exact = [](double x) { return std::exp2(x); };
    CHECK(max_error(exp2_of, exact, -149.0, 127.9) < 1.5);
    CHECK(max_error(exp2_of, exact, -1.0, 1.0) < 1.5);
    for (int n = -149; n < 128; ++n) {
      CHECK(exp2_of(static_cast<float>(n)) == std::ldexp(1.0f, n));
    }
  }
  TEST_CASE("the approximate 2^x has a relative error of about 2^-22") {
    const auto fast = [](float x) { return llmc::host::fast_exp2(x); };
    const auto exact = [](double x) { return std::exp2(x); };
    // 2^-22 is two to four units.
    CHECK(max_error(fast, exact, -149.0, 127.9) < 3);
    CHECK(fast(0.0f) == 1.0f);
  }
  TEST_CASE("e^x is accurate to 1.5 units in the last place, also below the normal range") {
    const auto exact = [](double x) { return std::exp(x); };
    CHECK(max_error(exp_of, exact, -103.0, 88.7) < 1.5);
    CHECK(max_error(exp_of, exact, -1.0, 1.0) < 1.5);
    CHECK(exp_of(0.0f) == 1.0f);
  }
  TEST_CASE("exponentials of vectors have the bits of those of numbers") {
    for (float first = -210.0f; first < 210.0f; first += 0.37f) {
      check_vectors<4>(first);
      check_vectors<llmc::host::kSimdWidth>(first);
    }
  }
  TEST_CASE("exponentials of huge numbers, infinities and NaN are those of the C library") {
    for (const auto function : {exp2_of, exp_of}) {
      for (const float x : {200.0f, 1e4f, 3e38f, kInfinity}) {
        CHECK(function(x) == kInfinity);
        CHECK(function(-x) == 0.0f);
      }
      CHECK(std::isnan(function(std::numeric_limits<float>::quiet_NaN())));
      CHECK(std::isnan(function(-std::numeric_limits<float>::quiet_NaN())));
    }
  }
}
