// Token plus position embedding, forward and backward. Token frequencies follow Zipf's law: the
// i-th most frequent token occurs about 1/i as often as the first.
#include <cmath>
#include <random>

#include "dev/bench.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/token_buckets.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;
using Tokens = llmc::Tensor<const std::int32_t, 1>;

constexpr std::int64_t kSampledRows = 128;

struct Shape {
  std::int64_t B, T, C, V;
  bool fp16 = true;
  std::int64_t rows() const { return B * T; }
  std::string text() const {
    return by(B, T) + "x" + std::to_string(C) + " V " + std::to_string(V);
  }
};

std::vector<std::int32_t> zipf_tokens(Shape s) {
  std::mt19937_64 bits(5);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < s.rows(); ++i) {
    const double uniform = static_cast<double>(bits() >> 11) * 0x1p-53;
    const double rank = std::exp(uniform * std::log(static_cast<double>(s.V + 1)));
    tokens.push_back(static_cast<std::int32_t>(
        std::min<std::int64_t>(s.V - 1, static_cast<std::int64_t>(rank) - 1)));
  }
  return tokens;
}

template <class T>
void forward(Bench& bench, Shape s) {
  const auto tokens = zipf_tokens(s);
  const auto distinct = static_cast<std::int64_t>(llmc::make_token_buckets(tokens).token.size());
  Case c(bench, {.op = "embedding_forward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>((s.rows() + distinct + s.T) * s.C)});
  if (!c.is_selected()) return;
  const auto ids = upload(tokens, bench.stream());
  auto& wte = c.input<T>(s.V * s.C, normal(1));
  auto& wpe = c.input<T>(s.T * s.C, normal(2));
  auto& out = c.output<T>(s.rows() * s.C);
  c.variant("used", [&](int i) {
    llmc::embedding_forward<T>(make_tensor(out.at(i), s.rows(), s.C),
                               Tokens{ids.data(), {s.rows()}}, make_tensor(wte.at(i), s.V, s.C),
                               make_tensor(wpe.at(i), s.T, s.C), s.T, bench.stream());
  });
  const auto rows = sample(s.rows(), kSampledRows);
  oracle::Vec expected;
  for (const std::int64_t r : rows) {
    const auto row = oracle::embedding_forward({0}, wte.values(tokens[r] * s.C, s.C),
                                               wpe.values(r % s.T * s.C, s.C), 1, 1, s.C);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  c.finish(
      [&] { return std::vector{compare("out", out.rows(rows, s.C), expected, tolerance<T>())}; });
}

template <class T>
void backward(Bench& bench, Shape s) {
  const auto tokens = zipf_tokens(s);
  const llmc::TokenBuckets host_buckets = llmc::make_token_buckets(tokens);
  const auto distinct = static_cast<std::int64_t>(host_buckets.token.size());
  const double read = sizeof(T) * static_cast<double>(s.rows() * s.C);
  Case c(bench, {.op = "embedding_backward",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = read + 8.0 * static_cast<double>((distinct + s.T) * s.C)});
  if (!c.is_selected()) return;
  const auto token = upload(host_buckets.token, bench.stream());
  const auto start = upload(host_buckets.start, bench.stream());
  const auto position = upload(host_buckets.position, bench.stream());
  const llmc::TokenBucketsView buckets{token.data(), start.data(), position.data(), distinct};
  auto& d_out = c.input<T>(s.rows() * s.C, normal(1));
  auto& d_wte = c.output<float>(s.V * s.C, normal(2));
  auto& d_wpe = c.output<float>(s.T * s.C, normal(3));
  oracle::Vec want_wte = d_wte.values(), want_wpe = d_wpe.values();
  c.variant("used", [&](int i) {
    llmc::embedding_backward<T>(
        make_tensor(d_wte.at(i), s.V, s.C), make_tensor(d_wpe.at(i), s.T, s.C),
        make_tensor(d_out.at(i), s.rows(), s.C), buckets, s.T, bench.stream());
  });
  const auto d = oracle::embedding_backward(d_out.values(), {tokens.begin(), tokens.end()}, s.B,
                                            s.T, s.C, s.V, s.T);
  oracle::add_to(want_wte, d.wte);
  oracle::add_to(want_wpe, d.wpe);
  c.finish([&] {
    return std::vector{compare("d_wte", d_wte.values(), want_wte, tolerance<float>(s.rows())),
                       compare("d_wpe", d_wpe.values(), want_wpe, tolerance<float>(s.B))};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) {
    shapes.insert(shapes.end(), {{1, 1, 8, 3}, {3, 7, 264, 11}, {2, 33, 768, 50}});
  }
  if (bench.includes(ShapeSet::gpt2)) {
    shapes.insert(shapes.end(), {{32, 1024, 768, 50257}, {16, 1024, 1600, 50257, false}});
  }
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { forward<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { backward<T>(bench, s); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "token and position embedding", run);
}
