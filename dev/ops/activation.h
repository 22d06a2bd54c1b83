// Activation functions, forward and backward. GPT-2's GELU also with one number per thread instead
// of 16 bytes.
#pragma once

#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "dev/variants/scalar.h"
#include "llmc/ops/activation.h"
#include "test/oracle/ops.h"

namespace llmc_dev::activation {

namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
};

struct Function {
  llmc::Activation kind;
  oracle::Activation exact;
  const char* name;
  bool has_scalar() const { return kind == llmc::Activation::gelu_new; }
  std::vector<std::string> variants() const {
    return has_scalar() ? std::vector<std::string>{"used", "scalar"}
                        : std::vector<std::string>{"used"};
  }
};
inline constexpr Function kFunctions[] = {
    {llmc::Activation::gelu_new, oracle::Activation::gelu_new, "gelu"},
    {llmc::Activation::gelu, oracle::Activation::gelu, "gelu_exact"},
    {llmc::Activation::relu, oracle::Activation::relu, "relu"}};

// Inputs at which a formula may fail.
inline const std::vector<float> kSpecial = {0.0f, -0.0f, 1e-20f, -1e-6f, 5.0f, -5.0f, 30.0f, -1e4f};

// The functions are elementwise, so comparing at most 64 rows with the oracle is enough.
constexpr std::int64_t kSampledRows = 64;

template <class T>
void forward(OpRunner& runner, const Function& f, Shape s) {
  const std::int64_t n = s.rows * s.C;
  OpCase c(runner, {.op = std::string(f.name) + "_forward",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .variants = f.variants(),
                    .bytes = 2.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(n, normal(1, 2));
  auto& out = c.output<T>(n);
  inp.begin_with(kSpecial);
  const auto run = [&](T* to, const T* from) {
    llmc::activation_forward<T>(make_tensor(to, s.rows, s.C), make_tensor(from, s.rows, s.C),
                                f.kind, runner.stream());
  };
  c.variant("used", [&](int i) { run(out.at(i), inp.at(i)); });
  c.in_place("inp", inp, out, [&] { run(inp.data(), inp.data()); });
  if (f.has_scalar()) {
    c.variant("scalar", [&](int i) {
      llmc::launch_elementwise<1>(gelu_forward_scalar_kernel<T>, n, runner.stream(), out.at(i),
                                  inp.at(i), n);
    });
  }
  const auto rows = sample(s.rows, kSampledRows);
  const oracle::Vec expected = oracle::activation_forward(f.exact, inp.rows(rows, s.C));
  c.finish(
      [&] { return std::vector{compare("out", out.rows(rows, s.C), expected, tolerance<T>())}; });
}

template <class T>
void backward(OpRunner& runner, const Function& f, Shape s) {
  const std::int64_t n = s.rows * s.C;
  OpCase c(runner, {.op = std::string(f.name) + "_backward",
                    .shape = by(s.rows, s.C),
                    .dtype = kDtypeOf<T>,
                    .variants = f.variants(),
                    .bytes = 3.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(n, normal(1, 2));
  auto& d_out = c.input<T>(n, normal(2));
  auto& d_inp = c.output<T>(n);
  inp.begin_with(kSpecial);
  const auto run = [&](T* to, int i) {
    llmc::activation_backward<T>(make_tensor(to, s.rows, s.C),
                                 make_tensor(d_out.at(i), s.rows, s.C),
                                 make_tensor(inp.at(i), s.rows, s.C), f.kind, runner.stream());
  };
  c.variant("used", [&](int i) { run(d_inp.at(i), i); });
  c.in_place("d_out", d_out, d_inp, [&] { run(d_out.data(), 0); });
  c.in_place("inp", inp, d_inp, [&] { run(inp.data(), 0); });
  if (f.has_scalar()) {
    c.variant("scalar", [&](int i) {
      llmc::launch_elementwise<1>(gelu_backward_scalar_kernel<T>, n, runner.stream(), d_inp.at(i),
                                  d_out.at(i), inp.at(i), n);
    });
  }
  const auto rows = sample(s.rows, kSampledRows);
  const oracle::Vec expected =
      oracle::activation_backward(f.exact, d_out.rows(rows, s.C), inp.rows(rows, s.C));
  c.finish([&] {
    return std::vector{compare("d_inp", d_inp.rows(rows, s.C), expected, tolerance<T>())};
  });
}

inline void cases(OpRunner& runner) {
  const Shapes<Shape> shapes = {.tiny = {{1, 8}, {3, 40}},
                                .small = {{37, 200}, {5, 768}, {7, 1600}},
                                .gpt2 = {{32768, 3072}, {16384, 6400, false}}};
  for (const Function& f : kFunctions) {
    for (const Shape s : runner.select(shapes)) {
      for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, f, s); });
      for_each_dtype(runner, s.fp16, [&]<class T>() { backward<T>(runner, f, s); });
    }
  }
}

}  // namespace llmc_dev::activation
