// Dropout of activations, out of place (the gradient of a branch) and in place (the embedding, a
// branch). One draw of four random words for four elements, against one draw per element.
// dev/ops/attention.h has attention's dropout.
#pragma once

#include "dev/harness/op_case.h"
#include "dev/variants/scalar.h"
#include "llmc/ops/dropout.h"
#include "test/oracle/dropout.h"

namespace llmc_dev::dropout {

namespace oracle = llmc::oracle;

constexpr std::int64_t kSampledRows = 64;
constexpr double kGpt2Rate = 0.1;
constexpr std::uint64_t kSeed = 0xfedcba9876543210;
constexpr std::int64_t kStep = 9, kSite = 300;
// The sample number of the first batch row fits in 32 bits, those of later rows do not.
constexpr std::int64_t kFirstSample = (std::int64_t{1} << 32) - 1;

struct Shape {
  std::int64_t B, T, C;
  double rate = kGpt2Rate;
  bool fp16 = true;
  // The part of the batch's rows that the op gets; a count of -1 means all.
  std::int64_t first_row = 0, row_count = -1;

  std::int64_t rows() const { return row_count < 0 ? B * T : row_count; }
  std::string text() const {
    char other_rate[32] = "", part[64] = "";
    if (rate != kGpt2Rate) std::snprintf(other_rate, sizeof other_rate, " rate %g", rate);
    if (row_count >= 0) {
      std::snprintf(part, sizeof part, " rows %lld+%lld", static_cast<long long>(first_row),
                    static_cast<long long>(row_count));
    }
    return by(B, T) + "x" + std::to_string(C) + other_rate + part;
  }
};

inline llmc::Dropout mask_of(Shape s) {
  llmc::Dropout dropout = llmc::make_dropout(s.rate, kSeed, kStep, kSite, kFirstSample);
  dropout.first_row = s.first_row;
  return dropout;
}

// The mask: 1 for each dropped (zero) element.
inline oracle::Vec left_out(const oracle::Vec& x) {
  oracle::Vec mask;
  for (const double value : x) mask.push_back(value == 0 ? 1 : 0);
  return mask;
}

// Applies the definition of dropout to `values`, the elements of rows `rows` of x.
inline oracle::Vec dropped(Shape s, const std::vector<std::int64_t>& rows, oracle::Vec values) {
  const oracle::Dropout definition{.seed = kSeed, .step = kStep, .first_sample = kFirstSample};
  auto x = values.begin();
  for (const std::int64_t r : rows) {
    const std::int64_t row = s.first_row + r;
    for (std::int64_t c = 0; c < s.C; ++c) {
      *x++ *= definition.factor(s.rate, kSite, row / s.T, row % s.T, c, 0);
    }
  }
  return values;
}

template <class T>
std::vector<Comparison> checked(Shape s, const DeviceArray<T>& out,
                                const std::vector<std::int64_t>& rows,
                                const oracle::Vec& expected) {
  const oracle::Vec got = out.rows(rows, s.C);
  // The mask is compared separately: one wrong element changes the norm less than rounding does.
  return {compare("out", got, expected, tolerance<T>()),
          compare("mask", left_out(got), left_out(expected), 0)};
}

template <class T>
void dropout(OpRunner& runner, Shape s) {
  const std::int64_t n = s.rows() * s.C;
  OpCase c(runner, {.op = "dropout",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "scalar"},
                    .bytes = 2.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(n, normal(1));
  auto& out = c.output<T>(n);
  const llmc::Dropout mask = mask_of(s);
  c.variant("used", [&](int i) {
    llmc::apply_dropout<T>(make_tensor(out.at(i), s.rows(), s.C),
                           make_tensor(inp.at(i), s.rows(), s.C), s.T, mask, runner.stream());
  });
  c.variant("scalar", [&](int i) {
    llmc::launch_elementwise<1>(dropout_scalar_kernel<T>, n, runner.stream(), out.at(i), inp.at(i),
                                n, s.T, s.C, mask);
  });
  const auto rows = sample(s.rows(), kSampledRows);
  const oracle::Vec expected = dropped(s, rows, inp.rows(rows, s.C));
  c.finish([&] { return checked(s, out, rows, expected); });
}

template <class T>
void in_place(OpRunner& runner, Shape s) {
  const std::int64_t n = s.rows() * s.C;
  OpCase c(runner, {.op = "dropout_in_place",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 2.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& x = c.output<T>(n, normal(1));
  const llmc::Dropout mask = mask_of(s);
  c.restore_each_round();
  c.variant("used", [&](int i) {
    const auto view = make_tensor(x.at(i), s.rows(), s.C);
    llmc::apply_dropout<T>(view, view, s.T, mask, runner.stream());
  });
  const auto rows = sample(s.rows(), kSampledRows);
  const oracle::Vec expected = dropped(s, rows, x.rows(rows, s.C));
  c.finish([&] { return checked(s, x, rows, expected); });
}

inline void cases(OpRunner& runner) {
  // The longest row takes a block more than one pass. Parts begin and end inside sequences.
  const Shapes<Shape> shapes = {.tiny = {{1, 1, 40},
                                         {4, 5, 16},
                                         {4, 5, 16, 0.5},
                                         {4, 5, 16, 1.0 / 3},
                                         {4, 5, 16, 0.5, true, 8, 6}},
                                .small = {{3, 7, 264},
                                          {4, 5, 264},
                                          {4, 5, 264, 0.5},
                                          {4, 5, 264, 1.0 / 3},
                                          {2, 3, 2056},
                                          {4, 5, 264, 0.5, true, 3, 1},
                                          {4, 5, 264, 1.0 / 3, true, 7, 13}},
                                .gpt2 = {{32, 1024, 768}, {16, 1024, 1600, kGpt2Rate, false}}};
  for (const Shape& s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { dropout<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { in_place<T>(runner, s); });
  }
}

}  // namespace llmc_dev::dropout
