// The norm of all gradients: partial sums of squares, then one block that adds them up.
#pragma once

#include "dev/harness/op_case.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "test/oracle/ops.h"

namespace llmc_dev::global_norm {

namespace oracle = llmc::oracle;

template <class T>
void partials(OpRunner& runner, std::int64_t n) {
  OpCase c(runner, {.op = "squared_norm_partials",
                    .shape = std::to_string(n),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  const std::int64_t count = llmc::squared_norm_count(n);
  auto& x = c.input<T>(n, normal(1));
  auto& out = c.output<float>(count);
  c.variant("used",
            [&](int i) { llmc::squared_norm_partials<T>(out.at(i), x.at(i), n, runner.stream()); });
  const auto pieces = sample(count, 1000);
  oracle::Vec expected;
  for (const std::int64_t piece : pieces) {
    const std::int64_t first = piece * llmc::kNormPiece;
    expected.push_back(
        oracle::sum_of_squares(x.values(first, std::min(llmc::kNormPiece, n - first))));
  }
  // Each lane of a warp adds 1/32 of the squares.
  constexpr std::int64_t kTerms = llmc::kNormPiece / 32;
  c.finish([&] {
    return std::vector{
        compare("partials", out.rows(pieces, 1), expected, tolerance<float>(kTerms))};
  });
}

// Runs the last phase on `count` partial sums, which stand for 1024 times as many gradients.
inline void finish(OpRunner& runner, std::int64_t count) {
  OpCase c(runner, {.op = "finish_global_norm",
                    .shape = std::to_string(count),
                    .bytes = 4.0 * static_cast<double>(count)});
  if (!c.is_selected()) return;
  auto& partials = c.input<float>(count, positive(1, 100));
  auto& norm_and_scale = c.output<float>(2);
  const Buffer<llmc::OptimizerState> state(1);
  llmc::fill_zero(state.data(), 1, runner.stream());
  double sum = 0;
  for (const double x : partials.values()) sum += x;
  const double norm = std::sqrt(sum);
  constexpr float kClip = 1;
  c.variant("used", [&](int i) {
    llmc::finish_global_norm(state.data(), partials.at(i), count, kClip, nullptr, runner.stream());
    // The report compares arrays of numbers, so two fields of the state are copied into one.
    llmc::copy_on_device(norm_and_scale.at(i), &state.data()->gradient_norm, 1, runner.stream());
    llmc::copy_on_device(norm_and_scale.at(i) + 1, &state.data()->gradient_scale, 1,
                         runner.stream());
  });
  // The numbers are positive, so the error of the sum is, relative to it, at most that of one
  // thread's part.
  const double allowed = tolerance<float>(llmc::ceil_div(count, llmc::array_sum_threads(count)));
  c.finish([&] {
    return std::vector{
        compare("norm", norm_and_scale.values(0, 1), {norm}, allowed),
        compare("scale", norm_and_scale.values(1, 1), {oracle::clip_factor(norm, kClip)}, allowed)};
  });
}

inline void cases(OpRunner& runner) {
  // Around one piece; several pieces, the last one partly filled.
  const Shapes<std::int64_t> sizes = {
      .tiny = {1, 7, 1023, 1024, 5000}, .small = {1025, 20489}, .gpt2 = {124475904, 1557686400}};
  for (const std::int64_t n : runner.select(sizes)) {
    for_each_dtype(runner, n <= 124475904, [&]<class T>() { partials<T>(runner, n); });
  }
  const Shapes<std::int64_t> counts = {
      .tiny = {1, 5, 601},
      .small = {21, 20001},
      .gpt2 = {llmc::squared_norm_count(124475904), llmc::squared_norm_count(1557686400)}};
  for (const std::int64_t count : runner.select(counts)) finish(runner, count);
}

}  // namespace llmc_dev::global_norm
