// Conversions between dtypes, with rounding to nearest and with stochastic rounding.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/optimizer/stochastic_rounding.h"
#include "test/oracle/rounding.h"

namespace llmc_dev::convert {

namespace oracle = llmc::oracle;

constexpr std::int64_t kSampled = 4000;
constexpr float kDeviation = 1e-3f;        // so small that some values are subnormal in fp16
constexpr std::int64_t k124M = 124475904;  // parameters

// x rounded to the nearest T, ties to even (the default rounding of nearbyint). The result is a
// multiple of the unit of 8 or 11 significant bits; in fp16 the unit is at least 2^-24.
template <class T>
double nearest(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::is_same_v<T, fp16> ? std::max(exponent - 11, -24) : exponent - 8;
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

template <class To, class From>
void convert(OpRunner& runner, std::int64_t n) {
  OpCase c(runner, {.op = std::string("convert_from_") + llmc::dtype_name(kDtypeOf<From>),
                    .shape = std::to_string(n),
                    .dtype = kDtypeOf<To>,
                    .bytes = (sizeof(To) + sizeof(From)) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<From>(n, normal(1, kDeviation));
  auto& out = c.output<To>(n);
  c.variant("used", [&](int i) { llmc::convert(out.at(i), inp.at(i), n, runner.stream()); });
  const auto which = sample(n, kSampled);
  std::vector<double> expected = inp.rows(which, 1);
  if (sizeof(To) < sizeof(From)) {
    for (double& x : expected) x = nearest<To>(x);
  }
  c.finish([&] { return std::vector{compare("out", out.rows(which, 1), expected, 0)}; });
}

// A range of a rank's part of a tensor, which consists of three pieces of `piece` elements per row,
// as the rank's heads of q, k and v. With a piece of 0 the range is the start of the tensor.
struct Range {
  std::int64_t n;
  std::int64_t piece = 0, ranks = 1, rank = 0, first = 0;

  llmc::GlobalIndex index() const {
    return {.begin = rank * piece,
            .row_size = 3 * piece,
            .piece = piece,
            .global_row_size = 3 * ranks * piece,
            .global_piece = ranks * piece};
  }
  // Index in the whole tensor of element i of the range. Part p of row r is piece 3 * r + p.
  std::int64_t element(std::int64_t i) const {
    if (piece == 0) return i;
    return ((first + i) / piece * ranks + rank) * piece + (first + i) % piece;
  }
};

// T: half precision. Each element has a fixed draw, so the result must equal the definition
// exactly.
template <class T>
void stochastic(OpRunner& runner, const Range& range) {
  const std::int64_t n = range.n;
  OpCase c(runner, {.op = range.piece == 0 ? "stochastic_convert" : "stochastic_convert_pieces",
                    .shape = std::to_string(n),
                    .dtype = kDtypeOf<T>,
                    .bytes = (sizeof(T) + sizeof(float)) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  constexpr std::uint64_t kSeed = 0xfedcba9876543210;
  constexpr std::uint32_t kTensor = 5, kStep = 11;
  constexpr auto kFormat = std::is_same_v<T, fp16> ? oracle::kFp16 : oracle::kBf16;
  auto& inp = c.input<float>(n, normal(1, kDeviation));
  auto& out = c.output<T>(n);
  c.variant("used", [&](int i) {
    llmc::stochastic_convert(
        out.at(i), static_cast<const float*>(inp.at(i)), n,
        {.seed = kSeed, .tensor = kTensor, .index = range.index(), .first = range.first}, kStep,
        runner.stream());
  });
  const auto which = sample(n, kSampled);
  const oracle::StochasticRounding definition{kSeed, kTensor, kStep};
  std::vector<double> expected = inp.rows(which, 1);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    expected[k] = definition.round(expected[k], range.element(which[k]), kFormat);
  }
  c.finish([&] { return std::vector{compare("out", out.rows(which, 1), expected, 0)}; });
}

inline void cases(OpRunner& runner) {
  const Shapes<std::int64_t> sizes = {
      .tiny = {1, 8, 203, 20005}, .small = {}, .gpt2 = {k124M, 1557686400}};
  for (const std::int64_t n : runner.select(sizes)) {
    convert<bf16, float>(runner, n);
    convert<float, bf16>(runner, n);
    convert<float, float>(runner, n);  // measures the peak
    stochastic<bf16>(runner, {n});
    if (n > k124M) continue;  // fp16 runs at only one of GPT-2's sizes
    convert<fp16, float>(runner, n);
    convert<float, fp16>(runner, n);
    stochastic<fp16>(runner, {n});
  }
  // Pieces of one and of three groups of four, which are shorter than a vector or no multiple of
  // it; c_attn of a GPT-2 124M with two ranks.
  const Shapes<Range> ranges = {
      .tiny = {{.n = 203, .piece = 4, .ranks = 3, .rank = 2, .first = 16},
               {.n = 805, .piece = 12, .ranks = 2, .rank = 1, .first = 28}},
      .small = {},
      .gpt2 = {{.n = 768 * 3 * 384, .piece = 384, .ranks = 2, .rank = 1}}};
  for (const Range& range : runner.select(ranges)) {
    stochastic<bf16>(runner, range);
    stochastic<fp16>(runner, range);
  }
}

}  // namespace llmc_dev::convert
