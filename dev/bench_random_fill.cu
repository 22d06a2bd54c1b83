// Initial values: normal numbers, which depend on the element's index, and constants.
#include <cmath>

#include "dev/bench.h"
#include "llmc/ops/random_fill.h"

namespace {

using namespace llmc_bench;

constexpr std::uint64_t kSeed = 7;
constexpr std::uint32_t kTensor = 3;
constexpr float kMean = 0.5f, kDeviation = 2.0f;

// The Box-Muller transform in fp64 of Philox's random bits for element i.
double normal_number(std::int64_t i) {
  const auto bits = llmc::random_bits(kSeed, llmc::RandomPurpose::initialisation, 0, kTensor,
                                      static_cast<std::uint64_t>(i / 4));
  const auto uniform = [&](std::int64_t word) {
    return (static_cast<double>(bits.words[word] >> 9) + 0.5) * 0x1p-23;
  };
  const std::int64_t pair = i % 4 / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(uniform(pair)));
  const double angle = 2 * std::acos(-1.0) * uniform(pair + 1);
  const double z = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
  return static_cast<double>(kMean) + static_cast<double>(kDeviation) * z;
}

void normal_fill(Bench& bench, std::int64_t n, std::int64_t first) {
  Case c(bench, {.op = "normal_fill",
                 .shape = std::to_string(n) + " from " + std::to_string(first),
                 .bytes = sizeof(float) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& out = c.output<float>(n);
  c.variant("used", [&](int i) {
    llmc::normal_fill(out.at(i), n, first, kSeed, kTensor, kMean, kDeviation, bench.stream());
  });
  const auto which = sample(n, 4000);
  std::vector<double> expected;
  for (const std::int64_t i : which) expected.push_back(normal_number(first + i));
  c.finish([&] {
    return std::vector{compare("out", out.rows(which, 1), expected, tolerance<float>())};
  });
}

template <class T>
void constant_fill(Bench& bench, std::int64_t n) {
  Case c(bench, {.op = "constant_fill",
                 .shape = std::to_string(n),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  constexpr float kValue = 1.5f;  // exact in every dtype
  auto& out = c.output<T>(n);
  c.variant("used", [&](int i) { llmc::constant_fill(out.at(i), n, kValue, bench.stream()); });
  const auto which = sample(n, 4000);
  const std::vector<double> expected(which.size(), static_cast<double>(kValue));
  c.finish([&] { return std::vector{compare("out", out.rows(which, 1), expected, 0)}; });
}

void run(Bench& bench) {
  std::vector<std::int64_t> sizes;
  if (bench.includes(ShapeSet::small)) sizes.insert(sizes.end(), {1, 803, 20005});
  if (bench.includes(ShapeSet::gpt2)) sizes.insert(sizes.end(), {50304 * 768, 50304 * 1600});
  for (const std::int64_t n : sizes) {
    normal_fill(bench, n, 0);
    normal_fill(bench, n, 427);  // a slice that begins inside a group of four
    for_each_dtype(n <= 50304 * 768, [&]<class T>() { constant_fill<T>(bench, n); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "initial values", run);
}
