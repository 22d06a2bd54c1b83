// The linear layer: x W + b, its gradients for x and W, and the head's product with the embedding.
#include "dev/bench.h"
#include "llmc/ops/linear.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;
using llmc::Transpose;

struct Shape {
  std::int64_t M, K, N;  // (M, K) times (K, N)
  bool fp16 = true;
  std::string text() const { return by(M, K) + "x" + std::to_string(N); }
  double flops() const { return 2.0 * static_cast<double>(M) * static_cast<double>(K * N); }
};

// Products of half precision add up in tensor cores, which may cut off what does not fit 24 bits
// where an fp32 sum rounds: an error to one side for every step of 16 terms.
template <class TI, class TO>
double product_tolerance(std::int64_t terms) {
  const double cut = sizeof(TI) < 4 ? static_cast<double>(terms) / 16 * 0x1p-24 : 0;
  return tolerance<TO>(terms) + cut;
}

template <class T>
void forward(Bench& bench, Shape s, bool with_bias) {
  Case c(bench, {.op = with_bias ? "linear_forward" : "linear_forward_no_bias",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(s.M * s.K + s.K * s.N + s.M * s.N),
                 .flops = s.flops()});
  if (!c.wanted()) return;
  llmc::Gemm gemm;
  auto& x = c.input<T>(s.M * s.K, normal(1));
  auto& w = c.input<T>(s.K * s.N, normal(2));
  auto& b = c.input<T>(s.N, normal(3));
  auto& y = c.output<T>(s.M * s.N);
  c.variant("used", [&](int i) {
    llmc::linear_forward<T>(make_tensor(y.at(i), s.M, s.N), make_tensor(x.at(i), s.M, s.K),
                            make_tensor(w.at(i), s.K, s.N),
                            make_tensor(with_bias ? b.at(i) : nullptr, s.N), gemm, bench.stream());
  });
  const auto rows = sample(s.M, 16);
  const auto want =
      oracle::linear_forward(x.rows(rows, s.K), w.values(), with_bias ? b.values() : oracle::Vec{},
                             static_cast<std::int64_t>(rows.size()), s.K, s.N);
  c.finish([&] {
    return std::vector{compare("y", y.rows(rows, s.N), want, product_tolerance<T, T>(s.K))};
  });
}

// d_x = d_y W^T.
template <class T>
void backward_input(Bench& bench, Shape s) {
  Case c(bench, {.op = "linear_backward_input",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(s.M * s.K + s.K * s.N + s.M * s.N),
                 .flops = s.flops()});
  if (!c.wanted()) return;
  llmc::Gemm gemm;
  auto& dy = c.input<T>(s.M * s.N, normal(1));
  auto& w = c.input<T>(s.K * s.N, normal(2));
  auto& dx = c.output<T>(s.M * s.K);
  c.variant("used", [&](int i) {
    llmc::linear_backward<T>(make_tensor(dx.at(i), s.M, s.K), {}, {},
                             make_tensor(dy.at(i), s.M, s.N), {}, make_tensor(w.at(i), s.K, s.N),
                             {}, gemm, bench.stream());
  });
  // As the head's product: rows of d_y with rows of W.
  const auto rows = sample(s.M, 16);
  const auto want = oracle::lm_head_forward(dy.rows(rows, s.N), w.values(),
                                            static_cast<std::int64_t>(rows.size()), s.N, s.K);
  c.finish([&] {
    return std::vector{compare("d_x", dx.rows(rows, s.K), want, product_tolerance<T, T>(s.N))};
  });
}

// d_W (fp32) += x^T d_y.
template <class T>
void backward_weight(Bench& bench, Shape s) {
  const double inputs = sizeof(T) * static_cast<double>(s.M * s.K + s.M * s.N);
  Case c(bench, {.op = "linear_backward_weight",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = inputs + 8.0 * static_cast<double>(s.K * s.N),
                 .flops = s.flops()});
  if (!c.wanted()) return;
  llmc::Gemm gemm;
  auto& dy = c.input<T>(s.M * s.N, normal(1));
  auto& x = c.input<T>(s.M * s.K, normal(2));
  auto& dw = c.output<float>(s.K * s.N, normal(3));
  c.variant("used", [&](int i) {
    llmc::linear_backward<T>({}, make_tensor(dw.at(i), s.K, s.N), {},
                             make_tensor(dy.at(i), s.M, s.N), make_tensor(x.at(i), s.M, s.K), {},
                             {}, gemm, bench.stream());
  });
  // Some rows of d_W: x's columns as rows of a product.
  const auto columns = sample(s.K, 6);
  const oracle::Vec all = x.values();
  oracle::Vec x_transposed;
  for (const std::int64_t k : columns) {
    for (std::int64_t m = 0; m < s.M; ++m) x_transposed.push_back(all[m * s.K + k]);
  }
  oracle::Vec want = dw.rows(columns, s.N);
  oracle::add_to(want, oracle::linear_forward(x_transposed, dy.values(), {},
                                              static_cast<std::int64_t>(columns.size()), s.M, s.N));
  c.finish([&] {
    return std::vector{
        compare("d_w", dw.rows(columns, s.N), want, product_tolerance<T, float>(s.M))};
  });
}

// The language-model head: logits (M, N) = h (M, K) times the embedding (N, K), transposed.
template <class T>
void head(Bench& bench, Shape s) {
  Case c(bench, {.op = "head_forward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(s.M * s.K + s.K * s.N + s.M * s.N),
                 .flops = s.flops()});
  if (!c.wanted()) return;
  llmc::Gemm gemm;
  auto& h = c.input<T>(s.M * s.K, normal(1));
  auto& wte = c.input<T>(s.N * s.K, normal(2));
  auto& logits = c.output<T>(s.M * s.N);
  constexpr const T* kNoBias = nullptr;
  c.variant("used", [&](int i) {
    const T* left = h.at(i);
    const T* right = wte.at(i);
    llmc::matmul(make_tensor(logits.at(i), s.M, s.N), make_tensor(left, s.M, s.K), Transpose::no,
                 make_tensor(right, s.N, s.K), Transpose::yes, 0.0f, kNoBias, gemm, bench.stream());
  });
  const auto rows = sample(s.M, 16);
  const auto want = oracle::lm_head_forward(h.rows(rows, s.K), wte.values(),
                                            static_cast<std::int64_t>(rows.size()), s.K, s.N);
  c.finish([&] {
    return std::vector{
        compare("logits", logits.rows(rows, s.N), want, product_tolerance<T, T>(s.K))};
  });
}

template <class T>
void all_of(Bench& bench, Shape s) {
  forward<T>(bench, s, true);
  forward<T>(bench, s, false);
  backward_input<T>(bench, s);
  backward_weight<T>(bench, s);
}

// The four linear layers of a block.
std::vector<Shape> block_shapes(std::int64_t rows, std::int64_t C, bool fp16) {
  return {
      {rows, C, 3 * C, fp16}, {rows, C, C, fp16}, {rows, C, 4 * C, fp16}, {rows, 4 * C, C, fp16}};
}

void run(Bench& bench) {
  std::vector<Shape> shapes, heads;
  if (bench.wants(ShapeSet::small)) {
    shapes = {{8, 8, 8}, {24, 40, 120}, {136, 96, 200}};
    heads = {{16, 40, 216}};
  }
  if (bench.wants(ShapeSet::gpt2)) {
    for (const auto& model : {block_shapes(32768, 768, true), block_shapes(16384, 1600, false)}) {
      shapes.insert(shapes.end(), model.begin(), model.end());
    }
    heads.insert(heads.end(), {{32768, 768, 50304}, {8192, 1600, 50304, false}});
  }
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { all_of<T>(bench, s); });
  }
  for (const Shape s : heads) {
    for_each_dtype(s.fp16, [&]<class T>() { head<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "linear layers and their gradients", run);
}
