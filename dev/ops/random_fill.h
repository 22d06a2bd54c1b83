// Initial values: normal numbers, which depend on the element's index in the whole tensor, in a
// contiguous part of a tensor or in pieces of its rows; and constants.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/random_fill.h"
#include "test/oracle/vec.h"

namespace llmc_dev::random_fill {

namespace oracle = llmc::oracle;

constexpr std::int64_t kSampled = 4000;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint32_t kTensor = 3;
constexpr float kMean = 0.5f, kDeviation = 2.0f;

// The part of a matrix (rows, parts * ranks * piece) that rank `rank` holds: `piece` columns of
// every part (for example of the queries, the keys and the values). The case fills it from element
// `first` on, without its last `missing` elements.
struct Pieces {
  std::int64_t rows, piece, ranks, rank;
  std::int64_t parts = 3, first = 0, missing = 0;

  std::int64_t size() const { return rows * parts * piece - first - missing; }
  llmc::GlobalIndex index() const {
    return {.begin = rank * piece,
            .row_size = parts * piece,
            .piece = piece,
            .global_row_size = parts * ranks * piece,
            .global_piece = ranks * piece};
  }
  // Index in the whole matrix of the rank's element i, from its row, part and column.
  std::int64_t element(std::int64_t i) const {
    const std::int64_t row = i / (parts * piece), part = i / piece % parts, column = i % piece;
    return ((row * parts + part) * ranks + rank) * piece + column;
  }
};

// The Box-Muller transform in fp64 of Philox's random bits for element i.
inline double normal_number(std::int64_t i) {
  const auto bits = llmc::random_bits(kSeed, llmc::RandomPurpose::initialisation, 0, kTensor,
                                      static_cast<std::uint64_t>(i / 4));
  const auto uniform = [&](std::int64_t word) {
    return (static_cast<double>(bits.words[word] >> 9) + 0.5) * 0x1p-23;
  };
  const std::int64_t pair = i % 4 / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(uniform(pair)));
  const double angle = 2 * std::acos(-1.0) * uniform(pair + 1);
  const double z = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
  return static_cast<double>(kMean) + static_cast<double>(kDeviation) * z;
}

inline void normal_fill(OpRunner& runner, std::int64_t n, std::int64_t first) {
  OpCase c(runner, {.op = "normal_fill",
                    .shape = std::to_string(n) + " from " + std::to_string(first),
                    .bytes = sizeof(float) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& out = c.output<float>(n);
  c.variant("used", [&](int i) {
    llmc::normal_fill(out.at(i), n, first, kSeed, kTensor, kMean, kDeviation, runner.stream());
  });
  const auto which = sample(n, kSampled);
  std::vector<double> expected;
  for (const std::int64_t i : which) expected.push_back(normal_number(first + i));
  c.finish([&] {
    return std::vector{compare("out", out.rows(which, 1), expected, tolerance<float>())};
  });
}

inline void normal_fill_pieces(OpRunner& runner, const Pieces& part) {
  const std::int64_t n = part.size();
  OpCase c(runner, {.op = "normal_fill_pieces",
                    .shape = by(part.rows, part.parts) + "x" + std::to_string(part.piece) + " of " +
                             std::to_string(part.ranks) + " ranks",
                    .bytes = sizeof(float) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& out = c.output<float>(n);
  c.variant("used", [&](int i) {
    llmc::normal_fill(out.at(i), n, part.first, part.index(), kSeed, kTensor, kMean, kDeviation,
                      runner.stream());
  });
  const auto which = sample(n, kSampled);
  std::vector<double> expected;
  for (const std::int64_t i : which)
    expected.push_back(normal_number(part.element(part.first + i)));
  c.finish([&] {
    return std::vector{compare("out", out.rows(which, 1), expected, tolerance<float>())};
  });
}

// A uniform number between -kDeviation and kDeviation, from Philox's random bits for element i.
inline double uniform_number(std::int64_t i) {
  const auto bits = llmc::random_bits(kSeed, llmc::RandomPurpose::initialisation, 0, kTensor,
                                      static_cast<std::uint64_t>(i / 4));
  const double fraction = (static_cast<double>(bits.words[i % 4] >> 9) + 0.5) * 0x1p-23;
  return static_cast<double>(kDeviation) * (2 * fraction - 1);
}

inline void uniform_fill(OpRunner& runner, const Pieces& part) {
  const std::int64_t n = part.size();
  OpCase c(runner, {.op = "uniform_fill",
                    .shape = by(part.rows, part.parts) + "x" + std::to_string(part.piece) + " of " +
                             std::to_string(part.ranks) + " ranks",
                    .bytes = sizeof(float) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& out = c.output<float>(n);
  c.variant("used", [&](int i) {
    llmc::uniform_fill(out.at(i), n, part.first, part.index(), kSeed, kTensor, kDeviation,
                       runner.stream());
  });
  const auto which = sample(n, kSampled);
  std::vector<double> expected;
  for (const std::int64_t i : which)
    expected.push_back(uniform_number(part.element(part.first + i)));
  c.finish([&] {
    return std::vector{compare("out", out.rows(which, 1), expected, tolerance<float>())};
  });
}

template <class T>
void constant_fill(OpRunner& runner, std::int64_t n) {
  OpCase c(runner, {.op = "constant_fill",
                    .shape = std::to_string(n),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  constexpr float kValue = 1.5f;  // exact in every dtype
  auto& out = c.output<T>(n);
  c.variant("used", [&](int i) { llmc::constant_fill(out.at(i), n, kValue, runner.stream()); });
  const auto which = sample(n, kSampled);
  const std::vector<double> expected(which.size(), static_cast<double>(kValue));
  c.finish([&] { return std::vector{compare("out", out.rows(which, 1), expected, 0)}; });
}

inline void cases(OpRunner& runner) {
  const Shapes<std::int64_t> sizes = {
      .tiny = {1, 16, 203, 803}, .small = {20005}, .gpt2 = {50304 * 768, 50304 * 1600}};
  for (const std::int64_t n : runner.select(sizes)) {
    normal_fill(runner, n, 0);
    normal_fill(runner, n, 427);  // a slice that begins inside a group of four
    for_each_dtype(runner, n <= 50304 * 768, [&]<class T>() { constant_fill<T>(runner, n); });
  }
  // Pieces of one group; ranges that begin inside a row and end inside a group; a matrix without
  // parts; c_attn of GPT-2.
  const Shapes<Pieces> pieces = {
      .tiny = {{.rows = 5, .piece = 4, .ranks = 3, .rank = 2},
               {.rows = 12, .piece = 8, .ranks = 4, .rank = 1, .first = 28, .missing = 3},
               {.rows = 64, .piece = 64, .ranks = 2, .rank = 0, .parts = 1}},
      .small = {{.rows = 37, .piece = 132, .ranks = 3, .rank = 1, .first = 400, .missing = 5}},
      .gpt2 = {{.rows = 768, .piece = 384, .ranks = 2, .rank = 1},
               {.rows = 1600, .piece = 320, .ranks = 5, .rank = 4}}};
  for (const Pieces& part : runner.select(pieces)) {
    normal_fill_pieces(runner, part);
    uniform_fill(runner, part);
  }
}

}  // namespace llmc_dev::random_fill
