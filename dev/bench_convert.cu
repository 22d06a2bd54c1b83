// Copies between number types.
#include <cmath>

#include "dev/bench.h"
#include "llmc/ops/convert.h"

namespace {

using namespace llmc_bench;

constexpr std::int64_t kSampled = 4000;

// The nearest number with 8 significant bits, ties to even (the default rounding of nearbyint).
double nearest_bf16(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, 8 - exponent)), exponent - 8);
}

template <class To, class From>
void convert(Bench& bench, const char* op, std::int64_t n) {
  Case c(bench, {.op = op,
                 .shape = std::to_string(n),
                 .dtype = kDtypeOf<To>,
                 .bytes = (sizeof(To) + sizeof(From)) * static_cast<double>(n)});
  if (!c.wanted()) return;
  auto& inp = c.input<From>(n, normal(1));
  auto& out = c.output<To>(n);
  c.variant("used", [&](int i) { llmc::convert(out.at(i), inp.at(i), n, bench.stream()); });
  const auto which = sample(n, kSampled);
  std::vector<double> want = inp.rows(which, 1);
  if (sizeof(To) < sizeof(From)) {
    for (double& x : want) x = nearest_bf16(x);
  }
  c.finish([&] { return std::vector{compare("out", out.rows(which, 1), want, 0)}; });
}

void run(Bench& bench) {
  std::vector<std::int64_t> sizes;
  if (bench.wants(ShapeSet::small)) sizes.insert(sizes.end(), {1, 203, 20005});
  if (bench.wants(ShapeSet::gpt2)) sizes.insert(sizes.end(), {124475904, 1557686400});
  for (const std::int64_t n : sizes) {
    convert<bf16, float>(bench, "convert_to_bf16", n);
    convert<float, bf16>(bench, "convert_to_fp32", n);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "copies between dtypes", run);
}
