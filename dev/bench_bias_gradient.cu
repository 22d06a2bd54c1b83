// The bias gradient: sums of columns.
#include "dev/bench.h"
#include "llmc/ops/bias_gradient.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t M, N;
  bool fp16 = true;
};

template <class T>
void bias_gradient(Bench& bench, Shape s) {
  Case c(bench, {.op = "bias_gradient",
                 .shape = by(s.M, s.N),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(s.M * s.N)});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::bias_gradient_scratch(s.M, s.N);
  auto& d_out = c.input<T>(s.M * s.N, normal(1));
  auto& scratch = c.input<float>(floats, kUnwritten);
  auto& d_bias = c.output<float>(s.N, normal(2));
  oracle::Vec expected = d_bias.values();
  c.variant("used", [&](int i) {
    llmc::bias_gradient<T>(make_tensor(d_bias.at(i), s.N), make_tensor(d_out.at(i), s.M, s.N),
                           make_tensor(scratch.at(i), floats), bench.stream());
  });
  oracle::add_to(expected, oracle::bias_backward(d_out.values(), s.M, s.N));
  c.finish([&] {
    return std::vector{compare("d_bias", d_bias.values(), expected, tolerance<float>(s.M))};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) {
    shapes.insert(shapes.end(), {{1, 8}, {67, 264}, {1000, 40}, {257, 1600}});
  }
  if (bench.includes(ShapeSet::gpt2)) {
    shapes.insert(shapes.end(), {{32768, 768}, {32768, 2304}, {32768, 3072}, {16384, 6400, false}});
  }
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { bias_gradient<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "bias gradient (column sums)", run);
}
