// Floats (llmc/device/floats.h): conversions in SIMD registers have the same bits as
// to_float and from_float, and operations process every element.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "llmc/device/floats.h"

namespace {

using namespace llmc;

// Checks from_float of numbers with these upper bits, among them numbers near ties of the rounding.
template <class T>
void check_rounding(std::uint32_t upper) {
  constexpr int N = 8;
  constexpr std::array<std::uint32_t, N> kLower = {0,      1,      0x0fff, 0x1000,
                                                   0x1001, 0x7fff, 0x8000, 0x8001};
  alignas(32) std::array<float, N> x;
  for (int k = 0; k < N; ++k) x[k] = float_from_bits(upper << 16 | kLower[k]);
  alignas(16) std::array<T, N> rounded;
  store_floats(rounded.data(), load_floats<N>(x.data()));
  for (int k = 0; k < N; ++k) {
    const T expected = from_float<T>(x[k]);
    const bool both_nan = x[k] != x[k] && to_float(rounded[k]) != to_float(rounded[k]);
    if (rounded[k].bits != expected.bits && !both_nan) {
      FAIL("number with bits " << bits_of(x[k]) << " became " << rounded[k].bits << " instead of "
                               << expected.bits);
    }
  }
}

// max_elements and min_elements, whose instructions depend on the width.
template <int N>
void check_nan_and_zeros() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats<N> one(1.0f), not_a_number(nan), zero(0.0f), minus_zero(-0.0f);
  CHECK(max_elements(one, not_a_number)[N - 1] == 1.0f);
  CHECK(min_elements(one, not_a_number)[N - 1] == 1.0f);
  CHECK(std::isnan(max_elements(not_a_number, one)[N - 1]));
  CHECK(std::isnan(min_elements(not_a_number, one)[N - 1]));
  CHECK(std::signbit(max_elements(minus_zero, zero)[0]));
  CHECK(std::signbit(min_elements(minus_zero, zero)[0]));
  CHECK_FALSE(std::signbit(max_elements(zero, minus_zero)[0]));
  CHECK_FALSE(std::signbit(min_elements(zero, minus_zero)[0]));
}

TEST_SUITE("floats") {
  TEST_CASE_TEMPLATE("every stored number is widened as by to_float", T, bf16, fp16) {
    constexpr int N = 8;
    for (std::uint32_t first = 0; first < 0x10000; first += N) {
      alignas(16) std::array<T, N> stored;
      for (int k = 0; k < N; ++k) stored[k].bits = static_cast<std::uint16_t>(first + k);
      alignas(32) std::array<float, N> x;
      store_floats(x.data(), load_floats<N>(stored.data()));
      for (int k = 0; k < N; ++k) {
        if (bits_of(x[k]) != bits_of(to_float(stored[k]))) FAIL("number with bits " << first + k);
      }
    }
  }

  TEST_CASE_TEMPLATE("numbers are rounded as by from_float", T, bf16, fp16) {
    for (std::uint32_t upper = 0; upper < 0x10000; ++upper) check_rounding<T>(upper);
  }

  TEST_CASE("the sum and the maximum cover all elements") {
    alignas(32) std::array<float, 32> x;
    for (int largest = 0; largest < 32; ++largest) {
      for (int k = 0; k < 32; ++k) x[k] = static_cast<float>(k == largest ? 100 : k);
      CHECK_EQ(sum_of(load_floats<32>(x.data())), 496.0f - static_cast<float>(largest) + 100.0f);
      CHECK_EQ(max_of(load_floats<32>(x.data())), 100.0f);
    }
  }

  TEST_CASE("the larger and the smaller of two elements are the first if the second is NaN") {
    check_nan_and_zeros<1>();
    check_nan_and_zeros<4>();
    check_nan_and_zeros<8>();
    check_nan_and_zeros<16>();
  }
  TEST_CASE_TEMPLATE("operations process every element of a vector of any length", Length,
                     std::integral_constant<int, 1>, std::integral_constant<int, 4>,
                     std::integral_constant<int, 8>, std::integral_constant<int, 12>,
                     std::integral_constant<int, 32>) {
    constexpr int N = Length::value;
    Vec<float, 32> numbers;
    for (int k = 0; k < 32; ++k) numbers[k] = static_cast<float>((k * 7) % 32 - 15);
    const Floats<N> x = load_floats<N>(numbers.values), y = 3.0f - x;
    const Floats<N> exponentials = accurate_exp2(x), larger = max_elements(x, y);
    const Floats<N> kept = keep_range(x, 1, 5, -100.0f);
    for (int k = 0; k < N; ++k) {
      const float a = numbers[k], b = 3.0f - a;
      CHECK_EQ(y[k], b);
      CHECK_EQ((x * y + 2.0f)[k], a * b + 2.0f);
      CHECK_EQ(fma(x, 0.5f, 2.0f)[k], 0.5f * a + 2.0f);
      CHECK_EQ((x / 4.0f)[k], a / 4.0f);
      CHECK_EQ(exponentials[k], accurate_exp2(a));
      CHECK_EQ(larger[k], std::max(a, b));
      CHECK_EQ(kept[k], k >= 1 && k <= 5 ? a : -100.0f);
    }
    if constexpr (N >= 8) {
      for (int k = 0; k < 4; ++k) CHECK_EQ(elements<4>(x, 4)[k], numbers[4 + k]);
    }
  }

  TEST_CASE_TEMPLATE("matrices of any shape are transposed", Rows, std::integral_constant<int, 1>,
                     std::integral_constant<int, 4>, std::integral_constant<int, 8>) {
    constexpr int R = Rows::value, C = 8;
    Vec<float, C> numbers;
    Floats<C> in[R];
    Floats<R> out[C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) numbers[c] = static_cast<float>(100 * r + c);
      in[r] = to_floats(numbers);
    }
    transpose(out, in);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) CHECK_EQ(out[c][r], static_cast<float>(100 * r + c));
    }
  }
}

}  // namespace
