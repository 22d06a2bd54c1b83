// The numbers that INT8 codes stand for.
#pragma once

#include "dev/harness/op_case.h"
#include "llmc/ops/dequantize.h"

namespace llmc_dev::dequantize {

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
};

template <class T>
void dequantize(OpRunner& runner, Shape s, llmc::ScaleAxis axis) {
  const bool by_row = axis == llmc::ScaleAxis::rows;
  OpCase c(runner, {.op = "dequantize",
                    .shape = by(s.rows, s.C) + (by_row ? " by row" : " by column"),
                    .dtype = kDtypeOf<T>,
                    .bytes = (1 + sizeof(T)) * static_cast<double>(s.rows * s.C)});
  if (!c.is_selected()) return;
  const std::int64_t outputs = by_row ? s.rows : s.C;
  auto& codes = c.input<std::int8_t>(s.rows * s.C, indices(2, 256));
  auto& scales = c.input<float>(outputs, positive(1, 0.1));
  auto& out = c.output<T>(s.rows * s.C);
  c.variant("used", [&](int i) {
    llmc::dequantize<T>(make_tensor(out.at(i), s.rows, s.C),
                        make_tensor(static_cast<const std::int8_t*>(codes.at(i)), s.rows, s.C),
                        make_tensor(scales.at(i), outputs), axis, runner.stream());
  });
  std::vector<double> expected = codes.values();
  const auto factors = scales.values();
  for (std::int64_t i = 0; i < s.rows * s.C; ++i)
    expected[i] *= factors[by_row ? i / s.C : i % s.C];
  c.finish([&] { return std::vector{compare("out", out.values(), expected, tolerance<T>())}; });
}

inline void cases(OpRunner& runner) {
  const Shapes<Shape> shapes = {.tiny = {{1, 8}, {3, 40}, {67, 264}},
                                .small = {{130, 768}, {257, 1600}},
                                .gpt2 = {{768, 3072}, {1600, 6400, false}, {50304, 768}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() {
      dequantize<T>(runner, s, llmc::ScaleAxis::rows);
      dequantize<T>(runner, s, llmc::ScaleAxis::columns);
    });
  }
}

}  // namespace llmc_dev::dequantize
