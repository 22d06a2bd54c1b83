// The norm of all gradients: partial sums of squares, then one block that adds them up.
#include "dev/bench.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;

template <class T>
void partials(Bench& bench, std::int64_t n) {
  Case c(bench, {.op = "squared_norm_partials",
                 .shape = std::to_string(n),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  const std::int64_t count = llmc::squared_norm_count(n);
  auto& x = c.input<T>(n, normal(1));
  auto& out = c.output<float>(count);
  c.variant("used",
            [&](int i) { llmc::squared_norm_partials<T>(out.at(i), x.at(i), n, bench.stream()); });
  const auto pieces = sample(count, 1000);
  oracle::Vec expected;
  for (const std::int64_t piece : pieces) {
    const std::int64_t first = piece * llmc::kNormPiece;
    expected.push_back(
        oracle::sum_of_squares(x.values(first, std::min(llmc::kNormPiece, n - first))));
  }
  c.finish([&] {
    return std::vector{
        compare("partials", out.rows(pieces, 1), expected, tolerance<float>(llmc::kNormPiece))};
  });
}

// Runs the last phase on `count` partial sums, which stand for 1024 times as many gradients.
void finish(Bench& bench, std::int64_t count) {
  Case c(bench, {.op = "finish_global_norm",
                 .shape = std::to_string(count),
                 .bytes = 4.0 * static_cast<double>(count)});
  if (!c.is_selected()) return;
  auto& partials = c.input<float>(count, positive(1, 100));
  auto& norm_and_scale = c.output<float>(2);
  const Buffer<llmc::OptimizerState> state(1);
  llmc::fill_zero(state.data(), 1, bench.stream());
  double sum = 0;
  for (const double x : partials.values()) sum += x;
  const double norm = std::sqrt(sum);
  constexpr float kClip = 1;
  c.variant("used", [&](int i) {
    llmc::finish_global_norm(state.data(), partials.at(i), count, kClip, nullptr, bench.stream());
    // The report compares arrays of numbers, so two fields of the state are copied into one.
    llmc::copy_on_device(norm_and_scale.at(i), &state.data()->gradient_norm, 1, bench.stream());
    llmc::copy_on_device(norm_and_scale.at(i) + 1, &state.data()->gradient_scale, 1,
                         bench.stream());
  });
  c.finish([&] {
    return std::vector{
        compare("norm", norm_and_scale.values(0, 1), {norm}, tolerance<float>(count)),
        compare("scale", norm_and_scale.values(1, 1), {oracle::clip_factor(norm, kClip)},
                tolerance<float>(count))};
  });
}

void run(Bench& bench) {
  std::vector<std::int64_t> sizes;
  if (bench.includes(ShapeSet::small)) sizes.insert(sizes.end(), {1, 1023, 20489});
  if (bench.includes(ShapeSet::gpt2)) sizes.insert(sizes.end(), {124475904, 1557686400});
  for (const std::int64_t n : sizes) {
    for_each_dtype(n <= 124475904, [&]<class T>() { partials<T>(bench, n); });
    finish(bench, llmc::squared_norm_count(n));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "norm of all gradients", run);
}
