// The multiplication of columns by a vector, and its gradients.
#pragma once

#include "dev/harness/op_case.h"
#include "llmc/ops/channel_scale.h"
#include "test/oracle/ops.h"

namespace llmc_dev::channel_scale {

namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t rows, N, first = 0;
  bool fp16 = true;

  std::string text() const {
    return by(rows, N) + (first == 0 ? "" : " from " + std::to_string(first));
  }
  // x with its columns times `scale`.
  oracle::Vec scaled(oracle::Vec x, const oracle::Vec& scale) const {
    for (std::int64_t i = 0; i < rows * N; ++i) {
      if (i % N >= first) x[i] *= scale[i % N - first];
    }
    return x;
  }
};

template <class T>
void forward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "channel_scale_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 2 * sizeof(T) * static_cast<double>(s.rows * s.N)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(s.rows * s.N, normal(1));
  auto& scale = c.input<T>(s.N - s.first, normal(2));
  auto& out = c.output<T>(s.rows * s.N);
  c.variant("used", [&](int i) {
    llmc::channel_scale_forward<T>(
        make_tensor(out.at(i), s.rows, s.N), make_tensor(inp.at(i), s.rows, s.N),
        make_tensor(scale.at(i), s.N - s.first), s.first, runner.stream());
  });
  const oracle::Vec expected = s.scaled(inp.values(), scale.values());
  c.finish([&] { return std::vector{compare("out", out.values(), expected, tolerance<T>())}; });
}

template <class T>
void backward(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "channel_scale_backward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 4 * sizeof(T) * static_cast<double>(s.rows * s.N)});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::channel_scale_backward_scratch(s.rows, s.N);
  const std::int64_t columns = s.N - s.first;
  auto& d_out = c.input<T>(s.rows * s.N, normal(1));
  auto& inp = c.input<T>(s.rows * s.N, normal(2));
  auto& scale = c.input<T>(columns, normal(3));
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_inp = c.output<T>(s.rows * s.N);
  auto& d_scale = c.output<float>(columns, normal(4));
  oracle::Vec expected_scale = d_scale.values();
  const auto run = [&](T* to_inp, float* to_scale, int i) {
    llmc::channel_scale_backward<T>(
        make_tensor(to_inp, s.rows, s.N), make_tensor(to_scale, columns),
        make_tensor(d_out.at(i), s.rows, s.N), make_tensor(inp.at(i), s.rows, s.N),
        make_tensor(scale.at(i), columns), s.first, make_tensor(scratch.at(i), floats),
        runner.stream());
  };
  c.variant("used", [&](int i) { run(d_inp.at(i), d_scale.at(i), i); });
  c.without("d_inp", {&d_inp}, [&] { run(nullptr, d_scale.at(0), 0); });
  c.without("d_scale", {&d_scale}, [&] { run(d_inp.at(0), nullptr, 0); });
  const oracle::Vec gradient = d_out.values(), x = inp.values();
  for (std::int64_t i = 0; i < s.rows * s.N; ++i) {
    if (i % s.N >= s.first) expected_scale[i % s.N - s.first] += gradient[i] * x[i];
  }
  const oracle::Vec expected = s.scaled(gradient, scale.values());
  c.finish([&] {
    return std::vector{
        compare("d_inp", d_inp.values(), expected, tolerance<T>()),
        compare("d_scale", d_scale.values(), expected_scale, tolerance<float>(s.rows))};
  });
}

inline void cases(OpRunner& runner) {
  // One row; fewer rows than warps; row counts that slabs do not divide; columns that are copied.
  const Shapes<Shape> shapes = {
      .tiny = {{1, 8}, {3, 48, 16}, {67, 264, 88}},
      .small = {{130, 2304, 768}, {1000, 40}, {129, 3072}},
      .gpt2 = {{32768, 2304}, {32768, 2304, 768}, {32768, 3072}, {16384, 6400, 0, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() {
      forward<T>(runner, s);
      backward<T>(runner, s);
    });
  }
}

}  // namespace llmc_dev::channel_scale
