// Floats (llmc/device/floats.h): the SIMD conversions of the host have the same bits as to_float
// and from_float.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>

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
}

}  // namespace
