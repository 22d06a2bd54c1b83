// LayerNorm: forward in three forms, forward fused with the residual addition, backward.
#include "dev/bench.h"
#include "dev/variants/layernorm_forward.h"
#include "llmc/ops/layernorm.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

constexpr float kEps = 1e-5f;
constexpr std::int64_t kSampledRows = 128;

struct Shape {
  std::int64_t rows, C;
  bool fp16 = true;
  double n() const { return static_cast<double>(rows * C); }
};

template <class T>
void forward(Bench& bench, Shape s) {
  Case c(bench, {.op = "layernorm_forward",
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
  c.variant("used", [&](int i) {
    llmc::layernorm_forward<T>(make_tensor(out.at(i), s.rows, s.C), make_tensor(mean.at(i), s.rows),
                               make_tensor(rstd.at(i), s.rows), make_tensor(inp.at(i), s.rows, s.C),
                               make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C), kEps,
                               bench.stream());
  });
  c.variant("warp_per_row", [&](int i) {
    constexpr int kWarps = 4;
    llmc::launch(layernorm_warp_per_row_kernel<T>, llmc::Grid{llmc::ceil_div(s.rows, kWarps), 1, 1},
                 kWarps * 32, 0, bench.stream(), out.at(i), mean.at(i), rstd.at(i), inp.at(i),
                 weight.at(i), bias.at(i), kEps, s.rows, s.C);
  });
  c.variant("thread_per_row", [&](int i) {
    constexpr int kThreads = 128;
    llmc::launch(layernorm_thread_per_row_kernel<T>,
                 llmc::Grid{llmc::ceil_div(s.rows, kThreads), 1, 1}, kThreads, 0, bench.stream(),
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

template <class T>
void residual_forward(Bench& bench, Shape s) {
  Case c(bench, {.op = "residual_layernorm_forward",
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
  c.variant("used", [&](int i) {
    llmc::residual_layernorm_forward<T>(
        make_tensor(sum.at(i), s.rows, s.C), make_tensor(out.at(i), s.rows, s.C),
        make_tensor(mean.at(i), s.rows), make_tensor(rstd.at(i), s.rows),
        make_tensor(inp1.at(i), s.rows, s.C), make_tensor(inp2.at(i), s.rows, s.C),
        make_tensor(weight.at(i), s.C), make_tensor(bias.at(i), s.C), kEps, bench.stream());
  });
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

template <class T>
void backward(Bench& bench, Shape s) {
  Case c(bench, {.op = "layernorm_backward",
                 .shape = by(s.rows, s.C),
                 .dtype = kDtypeOf<T>,
                 .bytes = 4.0 * sizeof(T) * s.n() + 8.0 * static_cast<double>(s.rows)});
  if (!c.is_selected()) return;
  const std::int64_t floats = llmc::layernorm_backward_scratch(s.rows, s.C);
  auto& inp = c.input<T>(s.rows * s.C, normal(1, 1.5f, 0.7f));
  auto& d_out = c.input<T>(s.rows * s.C, normal(2));
  auto& skip = c.input<T>(s.rows * s.C, normal(3));  // gradient through the skip connection
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
                               make_tensor(weight.at(i), s.C), kEps, bench.stream());
  }
  c.variant("used", [&](int i) {
    llmc::layernorm_backward<T>(
        make_tensor(d_inp.at(i), s.rows, s.C), make_tensor(d_weight.at(i), s.C),
        make_tensor(d_bias.at(i), s.C), make_tensor(d_out.at(i), s.rows, s.C),
        make_tensor(inp.at(i), s.rows, s.C), make_tensor(mean.at(i), s.rows),
        make_tensor(rstd.at(i), s.rows), make_tensor(weight.at(i), s.C),
        make_tensor(skip.at(i), s.rows, s.C), make_tensor(scratch.at(i), floats), bench.stream());
  });
  // The parameter gradients are sums over all rows, so all rows are compared.
  auto expected = oracle::residual_layernorm_backward(d_out.values(), skip.values(), inp.values(),
                                                      weight.values(), s.rows, s.C, kEps);
  oracle::add_to(expected.weight, start_weight);
  oracle::add_to(expected.bias, start_bias);
  c.finish([&] {
    return std::vector{
        compare("d_inp", d_inp.values(), expected.x, tolerance<T>(s.C)),
        compare("d_weight", d_weight.values(), expected.weight, tolerance<float>(s.rows)),
        compare("d_bias", d_bias.values(), expected.bias, tolerance<float>(s.rows))};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) {
    shapes.insert(shapes.end(), {{1, 8}, {37, 264}, {130, 768}, {5, 1600}});
  }
  if (bench.includes(ShapeSet::gpt2))
    shapes.insert(shapes.end(), {{32768, 768}, {16384, 1600, false}});
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { forward<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { residual_forward<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { backward<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "LayerNorm, alone and with the residual addition", run);
}
