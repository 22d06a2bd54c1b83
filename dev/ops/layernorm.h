// LayerNorm: forward in three forms, its output again, forward fused with the residual addition,
// backward.
#pragma once

#include "dev/harness/op_case.h"
#include "dev/variants/layernorm_forward.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/residual_add.h"
#include "test/oracle/ops.h"

namespace llmc_dev::layernorm {

namespace oracle = llmc::oracle;

constexpr float kEps = 1e-5f;
constexpr std::int64_t kSampledRows = 128;

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
  double n() const { return static_cast<double>(rows * C); }
};

template <class T>
void forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "layernorm_forward",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "warp_per_row", "thread_per_row"},
                    .bytes = 2.0 * sizeof(T) * s.n() + 8.0 * static_cast<double>(s.rows)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.7f));
  auto& weight = c.input<T>(s.C, normal(2, 0.3f, 1.0f));
  auto& bias = c.input<T>(s.C, normal(3));
  auto& out = c.output<T>(s.rows * s.C);
  auto& mean = c.output<float>(s.rows);
  auto& rstd = c.output<float>(s.rows);
  const auto run = [&](T* to, int i) {
    llmc::layernorm_forward<T>(make_tensor(to, s.rows, s.C), make_tensor(mean.at(i), s.rows),
                               make_tensor(rstd.at(i), s.rows), make_tensor(inp.at(i), s.rows, s.C),
                               make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C), kEps,
                               runner.stream());
  };
  c.variant("used", [&](int i) { run(out.at(i), i); });
  c.in_place("inp", inp, out, [&] { run(inp.data(), 0); });
  c.variant("warp_per_row", [&](int i) {
    constexpr int kWarps = llmc::cooperating_threads(4);
    llmc::launch(layernorm_warp_per_row_kernel<T>, llmc::Grid{llmc::ceil_div(s.rows, kWarps), 1, 1},
                 kWarps * llmc::cooperating_threads(32), 0, runner.stream(), out.at(i), mean.at(i),
                 rstd.at(i), inp.at(i), weight.at(i), bias.at(i), kEps, s.rows, s.C);
  });
  c.variant("thread_per_row", [&](int i) {
    constexpr int kThreads = 128;
    llmc::launch(layernorm_thread_per_row_kernel<T>,
                 llmc::Grid{llmc::ceil_div(s.rows, kThreads), 1, 1}, kThreads, 0, runner.stream(),
                 out.at(i), mean.at(i), rstd.at(i), inp.at(i), weight.at(i), bias.at(i), kEps,
                 s.rows, s.C);
  });
  const auto rows = sample(s.rows, kSampledRows);
  const auto expected =
      oracle::layernorm_forward(inp.rows(rows, s.C), weight.values(), bias.values(),
                                static_cast<std::int64_t>(rows.size()), s.C, kEps);
  // The mean's error is that of a sum of C numbers, but it is relative to the mean, which may be
  // small.
  const double statistics = tolerance<float>(s.C);
  c.finish([&] {
    return std::vector{compare("out", out.rows(rows, s.C), expected.out, tolerance<T>(s.C)),
                       compare("mean", mean.rows(rows, 1), expected.mean, statistics),
                       compare("rstd", rstd.rows(rows, 1), expected.rstd, statistics)};
  });
}

// The output again, from the statistics of a forward pass.
template <class T>
void output(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "layernorm_output",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = 2.0 * sizeof(T) * s.n() + 8.0 * static_cast<double>(s.rows)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.7f));
  auto& weight = c.input<T>(s.C, normal(2, 0.3f, 1.0f));
  auto& bias = c.input<T>(s.C, normal(3));
  auto& mean = c.input<float>(s.rows, kComputed);
  auto& rstd = c.input<float>(s.rows, kComputed);
  auto& out = c.output<T>(s.rows * s.C);
  for (int i = 0; i < inp.sets(); ++i) {  // computes mean and rstd
    llmc::layernorm_forward<T>(make_tensor(out.at(i), s.rows, s.C), make_tensor(mean.at(i), s.rows),
                               make_tensor(rstd.at(i), s.rows), make_tensor(inp.at(i), s.rows, s.C),
                               make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C), kEps,
                               runner.stream());
  }
  const auto run = [&](T* to, int i) {
    llmc::layernorm_output<T>(make_tensor(to, s.rows, s.C), make_tensor(inp.at(i), s.rows, s.C),
                              make_tensor(mean.at(i), s.rows), make_tensor(rstd.at(i), s.rows),
                              make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C),
                              runner.stream());
  };
  c.variant("used", [&](int i) { run(out.at(i), i); });
  c.in_place("inp", inp, out, [&] { run(inp.data(), 0); });
  const auto rows = sample(s.rows, kSampledRows);
  const auto expected =
      oracle::layernorm_forward(inp.rows(rows, s.C), weight.values(), bias.values(),
                                static_cast<std::int64_t>(rows.size()), s.C, kEps);
  c.finish([&] {
    return std::vector{compare("out", out.rows(rows, s.C), expected.out, tolerance<T>(s.C))};
  });
}

template <class T>
void residual_forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "residual_layernorm_forward",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = 4.0 * sizeof(T) * s.n() + 8.0 * static_cast<double>(s.rows)});
  if (!c.is_selected()) return;
  auto& inp1 = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.5f));
  auto& inp2 = c.input<T>(s.rows * s.C, normal(2));
  auto& weight = c.input<T>(s.C, normal(3, 0.3f, 1.0f));
  auto& bias = c.input<T>(s.C, normal(4));
  auto& sum = c.output<T>(s.rows * s.C);
  auto& out = c.output<T>(s.rows * s.C);
  auto& mean = c.output<float>(s.rows);
  auto& rstd = c.output<float>(s.rows);
  const auto run = [&](T* to_sum, int i) {
    llmc::residual_layernorm_forward<T>(
        make_tensor(to_sum, s.rows, s.C), make_tensor(out.at(i), s.rows, s.C),
        make_tensor(mean.at(i), s.rows), make_tensor(rstd.at(i), s.rows),
        make_tensor(inp1.at(i), s.rows, s.C), make_tensor(inp2.at(i), s.rows, s.C),
        make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C), kEps, runner.stream());
  };
  c.variant("used", [&](int i) { run(sum.at(i), i); });
  c.in_place("inp1", inp1, sum, [&] { run(inp1.data(), 0); });
  const auto rows = sample(s.rows, kSampledRows);
  const oracle::Vec expected_sum =
      oracle::residual_forward(inp1.rows(rows, s.C), inp2.rows(rows, s.C));
  c.finish([&] {
    // The LayerNorm reads the sum as stored, after rounding to T.
    const oracle::Vec stored = sum.rows(rows, s.C);
    const auto expected = oracle::layernorm_forward(
        stored, weight.values(), bias.values(), static_cast<std::int64_t>(rows.size()), s.C, kEps);
    const double statistics = tolerance<float>(s.C);
    return std::vector{compare("sum", stored, expected_sum, tolerance<T>()),
                       compare("out", out.rows(rows, s.C), expected.out, tolerance<T>(s.C)),
                       compare("mean", mean.rows(rows, 1), expected.mean, statistics),
                       compare("rstd", rstd.rows(rows, 1), expected.rstd, statistics)};
  });
}

// Without a LayerNorm after it, the sum has the same bits.
template <class T>
void residual_add(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "residual_add",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = 3.0 * sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& inp1 = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.5f));
  auto& inp2 = c.input<T>(s.rows * s.C, normal(2));
  auto& sum = c.output<T>(s.rows * s.C);
  const auto run = [&](T* to, int i) {
    llmc::residual_add<T>(make_tensor(to, s.rows, s.C), make_tensor(inp1.at(i), s.rows, s.C),
                          make_tensor(inp2.at(i), s.rows, s.C), runner.stream());
  };
  c.variant("used", [&](int i) { run(sum.at(i), i); });
  c.in_place("inp1", inp1, sum, [&] { run(inp1.data(), 0); });
  c.in_place("inp2", inp2, sum, [&] { run(inp2.data(), 0); });
  const auto rows = sample(s.rows, kSampledRows);
  oracle::Vec expected;
  const oracle::Vec a = inp1.rows(rows, s.C), b = inp2.rows(rows, s.C);
  // The sum of two numbers in fp32, rounded to T.
  for (std::size_t i = 0; i < a.size(); ++i) {
    expected.push_back(static_cast<double>(
        llmc::to_float(llmc::from_float<T>(static_cast<float>(a[i]) + static_cast<float>(b[i])))));
  }
  c.finish([&] { return std::vector{compare("sum", sum.rows(rows, s.C), expected, 0)}; });
}

// The input's gradient also gets the gradient through the skip connection, if there is one.
template <class T>
void backward(OpRunner& runner, Shape s, bool with_skip) {
  OpCase c(runner, {.op = with_skip ? "layernorm_backward" : "layernorm_backward_no_skip",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .bytes = (with_skip ? 4.0 : 3.0) * sizeof(T) * s.n() +
                             8.0 * static_cast<double>(s.rows)});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::layernorm_backward_scratch(s.rows, s.C);
  auto& inp = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.7f));
  auto& d_out = c.input<T>(s.rows * s.C, normal(2));
  auto& skip = c.input<T>(s.rows * s.C, normal(3));
  auto& weight = c.input<T>(s.C, normal(4, 0.3f, 1.0f));
  auto& mean = c.input<float>(s.rows, kComputed);
  auto& rstd = c.input<float>(s.rows, kComputed);
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_inp = c.output<T>(s.rows * s.C);
  auto& d_weight = c.output<float>(s.C, normal(5));
  auto& d_bias = c.output<float>(s.C, normal(6));
  const oracle::Vec start_weight = d_weight.values(), start_bias = d_bias.values();
  for (int i = 0; i < inp.sets(); ++i) {  // computes mean and rstd; d_inp serves as scratch
    llmc::layernorm_forward<T>(make_tensor(d_inp.at(i), s.rows, s.C),
                               make_tensor(mean.at(i), s.rows), make_tensor(rstd.at(i), s.rows),
                               make_tensor(inp.at(i), s.rows, s.C), make_tensor(weight.at(i), s.C),
                               make_tensor(weight.at(i), s.C), kEps, runner.stream());
  }
  const auto run = [&](T* to, int i, bool weight_frozen = false, bool bias_frozen = false) {
    llmc::layernorm_backward<T>(
        make_tensor(to, s.rows, s.C), make_tensor(weight_frozen ? nullptr : d_weight.at(i), s.C),
        make_tensor(bias_frozen ? nullptr : d_bias.at(i), s.C),
        make_tensor(d_out.at(i), s.rows, s.C), make_tensor(inp.at(i), s.rows, s.C),
        make_tensor(mean.at(i), s.rows), make_tensor(rstd.at(i), s.rows),
        make_tensor(weight.at(i), s.C), make_tensor(with_skip ? skip.at(i) : nullptr, s.rows, s.C),
        make_tensor(scratch.at(i), floats), runner.stream());
  };
  c.variant("used", [&](int i) { run(d_inp.at(i), i); });
  c.in_place("d_out", d_out, d_inp, [&] { run(d_out.data(), 0); });
  if (with_skip) c.in_place("skip", skip, d_inp, [&] { run(skip.data(), 0); });
  c.without("d_weight", {&d_weight}, [&] { run(d_inp.data(), 0, true, false); });
  c.without("d_bias", {&d_bias}, [&] { run(d_inp.data(), 0, false, true); });
  c.without("d_weight and d_bias", {&d_weight, &d_bias}, [&] { run(d_inp.data(), 0, true, true); });
  // The parameter gradients are sums over all rows, so all rows are compared.
  auto expected =
      oracle::layernorm_backward(d_out.values(), inp.values(), weight.values(), s.rows, s.C, kEps);
  if (with_skip) oracle::add_to(expected.x, skip.values());
  oracle::add_to(expected.weight, start_weight);
  oracle::add_to(expected.bias, start_bias);
  c.finish([&] {
    return std::vector{
        // Without a skip connection: three sums and a difference of terms.
        compare("d_inp", d_inp.values(), expected.x, (with_skip ? 1 : 2) * tolerance<T>(s.C)),
        compare("d_weight", d_weight.values(), expected.weight, tolerance<float>(s.rows)),
        compare("d_bias", d_bias.values(), expected.bias, tolerance<float>(s.rows))};
  });
}

inline void cases(OpRunner& runner) {
  // Every register layout of a row, full and partly filled; one row; partly filled blocks.
  const Shapes<Shape> shapes = {.tiny = {{1, 8}, {5, 40}, {2, 1032}},
                                .small = {{3, 264},
                                          {130, 256},
                                          {37, 768},
                                          {5, 1024},
                                          {5, 1280},
                                          {3, 1600},
                                          {2, 2056},
                                          {2, 8192},
                                          {1203, 8}},
                                .gpt2 = {{32768, 768}, {16384, 1600, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { output<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { residual_forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { residual_add<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { backward<T>(runner, s, true); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { backward<T>(runner, s, false); });
  }
}

}  // namespace llmc_dev::layernorm
