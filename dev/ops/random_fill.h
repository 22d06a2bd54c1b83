// Initial values: normal numbers, which depend on the element's index, in a slice of a tensor or in
// a tensor-parallel rank's columns of a matrix; and constants.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/random_fill.h"
#include "test/oracle/vec.h"

namespace llmc_dev::random_fill {

namespace oracle = llmc::oracle;

constexpr std::int64_t kSampled = 4000, kSampledRows = 100;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint32_t kTensor = 3;
constexpr float kMean = 0.5f, kDeviation = 2.0f;

// The columns that rank `rank` holds of one part (for example the keys) of a matrix (rows, parts *
// ranks * columns). The rank's array holds its columns of all parts.
struct Columns {
  std::int64_t rows, columns, ranks, rank;
  std::int64_t parts = 1, part = 0;

  llmc::ElementBox box() const {
    return {.rows = rows,
            .columns = columns,
            .local_begin = part * columns,
            .local_stride = parts * columns,
            .global_begin = (part * ranks + rank) * columns,
            .global_stride = parts * ranks * columns};
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

// The shape of a case: (rows, columns) of a matrix with global_stride columns.
inline std::string box_text(const llmc::ElementBox& box) {
  return by(box.rows, box.columns) + " of " + std::to_string(box.global_stride) + " columns";
}

// Fills a box in the rank's array, which has local_stride columns. The columns outside the box
// belong to other boxes and keep their values.
inline void normal_fill_box(OpRunner& runner, const llmc::ElementBox& box) {
  OpCase c(runner, {.op = "normal_fill_box",
                    .shape = box_text(box),
                    .bytes = sizeof(float) * static_cast<double>(box.size())});
  if (!c.is_selected()) return;
  auto& out = c.output<float>(box.rows * box.local_stride, normal(1));
  const auto rows = sample(box.rows, kSampledRows);
  const auto is_in_box = [&](std::int64_t column) {
    return column >= box.local_begin && column < box.local_begin + box.columns;
  };
  // The elements of the sampled rows in the box, or the others.
  const auto select = [&](const oracle::Vec& all, bool in_box) {
    oracle::Vec selected;
    for (std::int64_t i = 0; i < std::ssize(all); ++i) {
      if (is_in_box(i % box.local_stride) == in_box) selected.push_back(all[i]);
    }
    return selected;
  };
  const oracle::Vec kept = select(out.rows(rows, box.local_stride), false);
  oracle::Vec expected;
  for (const std::int64_t row : rows) {
    for (std::int64_t column = 0; column < box.columns; ++column) {
      expected.push_back(normal_number(box.global_begin + row * box.global_stride + column));
    }
  }
  c.variant("used", [&](int i) {
    llmc::normal_fill(out.at(i), box, kSeed, kTensor, kMean, kDeviation, runner.stream());
  });
  c.finish([&] {
    const oracle::Vec actual = out.rows(rows, box.local_stride);
    return std::vector{compare("box", select(actual, true), expected, tolerance<float>()),
                       compare("other columns", select(actual, false), kept, 0)};
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
  // Rows shorter than a group of four, and rows that begin inside one; c_attn of GPT-2.
  const Shapes<Columns> columns = {
      .tiny = {{.rows = 5, .columns = 1, .ranks = 3, .rank = 2},
               {.rows = 12, .columns = 3, .ranks = 4, .rank = 1, .parts = 3, .part = 2},
               {.rows = 7, .columns = 9, .ranks = 2, .rank = 1, .parts = 3, .part = 1},
               {.rows = 64, .columns = 64, .ranks = 2, .rank = 0}},
      .small = {{.rows = 37, .columns = 130, .ranks = 3, .rank = 0}},
      .gpt2 = {{.rows = 768, .columns = 384, .ranks = 2, .rank = 1, .parts = 3, .part = 1},
               {.rows = 1600, .columns = 320, .ranks = 5, .rank = 4, .parts = 3, .part = 2}}};
  for (const Columns& part : runner.select(columns)) normal_fill_box(runner, part.box());
}

}  // namespace llmc_dev::random_fill
