// GELU, forward and backward: 16 bytes per thread against one number per thread.
#include "dev/bench.h"
#include "dev/variants/scalar.h"
#include "llmc/ops/gelu.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
};

// GELU is elementwise, so comparing at most 64 rows with the oracle is enough.
constexpr std::int64_t kSampledRows = 64;

template <class T>
void forward(Bench& bench, Shape s) {
  const std::int64_t n = s.rows * s.C;
  Case c(bench, {.op = "gelu_forward",
                 .shape = by(s.rows, s.C),
                 .dtype = kDtypeOf<T>,
                 .variants = {"used", "scalar"},
                 .bytes = 2.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(n, normal(1, 2));
  auto& out = c.output<T>(n);
  c.variant("used", [&](int i) {
    llmc::gelu_forward<T>(make_tensor(out.at(i), s.rows, s.C), make_tensor(inp.at(i), s.rows, s.C),
                          bench.stream());
  });
  c.variant("scalar", [&](int i) {
    llmc::launch_elementwise<1>(gelu_forward_scalar_kernel<T>, n, bench.stream(), out.at(i),
                                inp.at(i), n);
  });
  const auto rows = sample(s.rows, kSampledRows);
  const oracle::Vec expected = oracle::gelu_forward(inp.rows(rows, s.C));
  c.finish(
      [&] { return std::vector{compare("out", out.rows(rows, s.C), expected, tolerance<T>())}; });
}

template <class T>
void backward(Bench& bench, Shape s) {
  const std::int64_t n = s.rows * s.C;
  Case c(bench, {.op = "gelu_backward",
                 .shape = by(s.rows, s.C),
                 .dtype = kDtypeOf<T>,
                 .variants = {"used", "scalar"},
                 .bytes = 3.0 * sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& inp = c.input<T>(n, normal(1, 2));
  auto& d_out = c.input<T>(n, normal(2));
  auto& d_inp = c.output<T>(n);
  c.variant("used", [&](int i) {
    llmc::gelu_backward<T>(make_tensor(d_inp.at(i), s.rows, s.C),
                           make_tensor(d_out.at(i), s.rows, s.C),
                           make_tensor(inp.at(i), s.rows, s.C), bench.stream());
  });
  c.variant("scalar", [&](int i) {
    llmc::launch_elementwise<1>(gelu_backward_scalar_kernel<T>, n, bench.stream(), d_inp.at(i),
                                d_out.at(i), inp.at(i), n);
  });
  const auto rows = sample(s.rows, kSampledRows);
  const oracle::Vec expected = oracle::gelu_backward(d_out.rows(rows, s.C), inp.rows(rows, s.C));
  c.finish([&] {
    return std::vector{compare("d_inp", d_inp.rows(rows, s.C), expected, tolerance<T>())};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) shapes.insert(shapes.end(), {{1, 8}, {37, 200}});
  if (bench.includes(ShapeSet::gpt2))
    shapes.insert(shapes.end(), {{32768, 3072}, {16384, 6400, false}});
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { forward<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { backward<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "tanh-GELU", run);
}
