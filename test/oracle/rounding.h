// Stochastic rounding to half precision, computed in double precision, from the description in
// llmc/ops/optimizer/stochastic_rounding.h and without any code of the engine.
#pragma once

#include <algorithm>
#include <cmath>

#include "test/oracle/dropout.h"

namespace llmc::oracle {

// A half-precision format: significant bits, and the exponent of its smallest unit. In bf16 only
// numbers that are subnormal in fp32 too reach that unit; round() rejects them.
struct HalfFormat {
  int digits, min_unit;
};
inline constexpr HalfFormat kBf16{8, -133}, kFp16{11, -24};

// Draws of one tensor in one update.
struct StochasticRounding {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0;
  std::uint32_t step = 0;

  // The 32 random bits of element i: purpose 4 of Philox's counter, four elements per draw.
  std::uint32_t bits(Index i) const {
    const auto low_word = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    const std::uint64_t group =
        (static_cast<std::uint64_t>(tensor) << 40) | static_cast<std::uint64_t>(i / 4);
    return philox_words(
        low_word(seed), low_word(seed >> 32),
        {low_word(group), low_word(group >> 32), step, 4})[static_cast<std::size_t>(i % 4)];
  }

  // x, exact in fp32, is (whole + rest) units. Normal result: x has 24 - digits bits below the
  // unit. As many leading random bits, as a fraction, are added to rest, and a carry rounds up.
  // Subnormal result (the unit is the format's smallest): x may have any number of digits, and 24
  // random bits, as a fraction, round up if they are below rest.
  double round(double x, Index i, HalfFormat format) const {
    if (x != 0 && std::abs(x) < 0x1p-126) {
      throw std::invalid_argument("oracle: stochastic rounding of a number subnormal in fp32");
    }
    int exponent = 0;
    std::frexp(x, &exponent);
    const int unit = std::max(exponent - format.digits, format.min_unit);
    const double units = std::ldexp(std::abs(x), -unit);
    const double whole = std::floor(units), rest = units - whole;
    const bool subnormal = units < std::ldexp(1.0, format.digits - 1);
    const int num_bits = subnormal ? 24 : 24 - format.digits;
    const double random = std::ldexp(static_cast<double>(bits(i) >> (32 - num_bits)), -num_bits);
    const bool carry = subnormal ? random < rest : rest + random >= 1;
    return std::copysign(std::ldexp(whole + (carry ? 1 : 0), unit), x);
  }
};

}  // namespace llmc::oracle
