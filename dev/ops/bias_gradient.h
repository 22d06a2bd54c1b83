// The bias gradient: sums of columns.
#pragma once

#include "dev/harness/op_case.h"
#include "llmc/ops/bias_gradient.h"
#include "test/oracle/ops.h"

namespace llmc_dev::bias_gradient {

namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t M, N;
  bool fp16 = true;
};

template <class T>
void bias_gradient(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "bias_gradient",
                    .shape = by(s.M, s.N),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(s.M * s.N)});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::bias_gradient_scratch(s.M, s.N);
  auto& d_out = c.input<T>(s.M * s.N, normal(1));
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_bias = c.output<float>(s.N, normal(2));
  oracle::Vec expected = d_bias.values();
  const auto run = [&](float* to, int i) {
    llmc::bias_gradient<T>(make_tensor(to, s.N), make_tensor(d_out.at(i), s.M, s.N),
                           make_tensor(scratch.at(i), floats), runner.stream());
  };
  c.variant("used", [&](int i) { run(d_bias.at(i), i); });
  c.without("d_bias", {&d_bias}, [&] { run(nullptr, 0); });
  oracle::add_to(expected, oracle::bias_backward(d_out.values(), s.M, s.N));
  c.finish([&] {
    return std::vector{compare("d_bias", d_bias.values(), expected, tolerance<float>(s.M))};
  });
}

inline void cases(OpRunner& runner) {
  // One row; fewer rows than warps; row counts that the slabs do not divide; several tiles.
  const Shapes<Shape> shapes = {
      .tiny = {{1, 8}, {3, 40}, {67, 264}},
      .small = {{130, 768}, {1000, 40}, {257, 1600}, {129, 3072}, {70000, 8}},
      .gpt2 = {{32768, 768}, {32768, 2304}, {32768, 3072}, {16384, 6400, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { bias_gradient<T>(runner, s); });
  }
}

}  // namespace llmc_dev::bias_gradient
