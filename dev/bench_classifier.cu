// The classifier: softmax, cross-entropy and d_logits in place, against three passes; the losses
// only; the two phases that vocabulary slices use, and the merge between them; the sum of the
// losses.
#include "dev/bench.h"
#include "dev/variants/classifier_three_pass.h"
#include "llmc/ops/classifier.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc_bench;
namespace oracle = llmc::oracle;
using Targets = llmc::Tensor<const std::int32_t, 1>;

constexpr std::int64_t kSampledRows = 24;

struct Shape {
  std::int64_t rows, V, Vp;
  bool fp16 = true;
  std::string text() const { return by(rows, V) + " of " + std::to_string(Vp); }
  double n() const { return static_cast<double>(rows * Vp); }
};

// Gradient of the mean loss with respect to one row's loss. fp16 needs a loss scale: without it
// most of d_logits would underflow.
template <class T>
float gradient_of_row(Shape s) {
  constexpr float kLossScale = std::is_same_v<T, fp16> ? 4096.0f : 1.0f;
  return kLossScale / static_cast<float>(s.rows);
}

// The oracle's results for some rows, in the engine's layout: rows of d_logits end in zeros.
struct Want {
  std::vector<std::int64_t> rows;
  oracle::Vec losses, d_logits;

  template <class T>
  Want(Shape s, const DeviceArray<T>& logits, const DeviceArray<std::int32_t>& targets,
       double dloss)
      : rows(sample(s.rows, kSampledRows)) {
    oracle::Vec values;
    oracle::Ints ids;
    for (const std::int64_t r : rows) {
      const oracle::Vec row = logits.values(r * s.Vp, s.V);
      values.insert(values.end(), row.begin(), row.end());
      ids.push_back(targets.stored(r, 1)[0]);
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    const auto y = oracle::classifier(values, ids, count, s.V, oracle::Vec(count, dloss));
    losses = y.row_loss;
    for (std::int64_t i = 0; i < count; ++i) {
      d_logits.insert(d_logits.end(), y.d_logits.begin() + i * s.V,
                      y.d_logits.begin() + (i + 1) * s.V);
      d_logits.resize((i + 1) * s.Vp);
    }
  }
};

template <class T>
void fused(Bench& bench, Shape s) {
  Case c(bench, {.op = "fused_classifier",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .variants = {"used", "three_pass"},
                 .bytes = 2.0 * sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.output<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  const float dloss = gradient_of_row<T>(s);
  const Want expected(s, logits, targets, dloss);
  c.restore_each_round();
  c.variant("used", [&](int i) {
    llmc::fused_classifier<T>(make_tensor(logits.at(i), s.rows, s.Vp),
                              make_tensor(losses.at(i), s.rows), Targets{targets.at(i), {s.rows}},
                              dloss, s.V, bench.stream());
  });
  c.variant("three_pass", [&](int i) {
    llmc::launch(classifier_three_pass_kernel<T>, llmc::Grid{s.rows, 1, 1},
                 llmc::classifier_threads<T>(s.Vp), llmc::classifier_shared(), bench.stream(),
                 logits.at(i), losses.at(i), targets.at(i), dloss, s.V, s.Vp);
  });
  c.finish([&] {
    return std::vector{
        compare("d_logits", logits.rows(expected.rows, s.Vp), expected.d_logits, tolerance<T>(s.V)),
        compare("losses", losses.rows(expected.rows, 1), expected.losses, tolerance<float>(s.V))};
  });
}

template <class T>
void loss_alone(Bench& bench, Shape s) {
  Case c(bench, {.op = "classifier_loss",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.input<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  const Want expected(s, logits, targets, 1.0);
  c.variant("used", [&](int i) {
    llmc::classifier_loss<T>(make_tensor(losses.at(i), s.rows),
                             make_tensor(logits.at(i), s.rows, s.Vp),
                             Targets{targets.at(i), {s.rows}}, s.V, bench.stream());
  });
  c.finish([&] {
    return std::vector{
        compare("losses", losses.rows(expected.rows, 1), expected.losses, tolerance<float>(s.V))};
  });
}

// Runs both phases on one slice, which is the whole vocabulary. The statistics between them are a
// few numbers per row.
template <class T>
void two_phases(Bench& bench, Shape s) {
  Case c(bench, {.op = "classifier_two_phases",
                 .shape = s.text(),
                 .dtype = kDtypeOf<T>,
                 .bytes = 3.0 * sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.output<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  auto& row_max = c.output<float>(s.rows);
  auto& row_sum = c.output<float>(s.rows);
  auto& target_logit = c.output<float>(s.rows);
  const float dloss = gradient_of_row<T>(s);
  const Want expected(s, logits, targets, dloss);
  c.restore_each_round();
  c.variant("used", [&](int i) {
    const Targets ids{targets.at(i), {s.rows}};
    const auto of_rows = [&](const DeviceArray<float>& x) { return make_tensor(x.at(i), s.rows); };
    const auto matrix = make_tensor(logits.at(i), s.rows, s.Vp);
    llmc::classifier_statistics<T>(of_rows(row_max), of_rows(row_sum), of_rows(target_logit),
                                   matrix, ids, 0, s.V, bench.stream());
    llmc::classifier_from_statistics<T>(matrix, of_rows(losses), ids, of_rows(row_max),
                                        of_rows(row_sum), of_rows(target_logit), dloss, 0, s.V,
                                        bench.stream());
  });
  c.finish([&] {
    return std::vector{
        compare("d_logits", logits.rows(expected.rows, s.Vp), expected.d_logits, tolerance<T>(s.V)),
        compare("losses", losses.rows(expected.rows, 1), expected.losses, tolerance<float>(s.V))};
  });
}

// Merges the statistics of two slices into those of the whole vocabulary, for each row.
void merge(Bench& bench, std::int64_t rows) {
  constexpr std::int64_t kSlices = 2;
  const std::int64_t n = kSlices * rows;
  Case c(bench, {.op = "merge_statistics",
                 .shape = by(kSlices, rows),
                 .bytes = 12.0 * static_cast<double>(n + rows)});
  if (!c.is_selected()) return;
  auto& all_max = c.input<float>(n, normal(1, 3));
  auto& all_sum = c.input<float>(n, positive(2, 100));
  auto& all_target = c.input<float>(n, normal(3, 3));
  auto& row_max = c.output<float>(rows);
  auto& row_sum = c.output<float>(rows);
  auto& target_logit = c.output<float>(rows);
  c.variant("used", [&](int i) {
    const auto of_rows = [&](const DeviceArray<float>& x) { return make_tensor(x.at(i), rows); };
    const auto of_slices = [&](const DeviceArray<float>& x) {
      return make_tensor(x.at(i), kSlices, rows);
    };
    llmc::merge_classifier_statistics(of_rows(row_max), of_rows(row_sum), of_rows(target_logit),
                                      of_slices(all_max), of_slices(all_sum), of_slices(all_target),
                                      bench.stream());
  });
  const oracle::Vec max = all_max.values(), sum = all_sum.values(), target = all_target.values();
  oracle::Vec want_max, expected_sum, want_target;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double highest = std::max(max[r], max[r + rows]);
    want_max.push_back(highest);
    expected_sum.push_back(sum[r] * std::exp(max[r] - highest) +
                           sum[r + rows] * std::exp(max[r + rows] - highest));
    want_target.push_back(target[r] + target[r + rows]);
  }
  c.finish([&] {
    return std::vector{compare("max", row_max.values(), want_max, 0),
                       compare("sum", row_sum.values(), expected_sum, tolerance<float>()),
                       compare("target", target_logit.values(), want_target, tolerance<float>())};
  });
}

void sum_losses(Bench& bench, std::int64_t n) {
  Case c(bench,
         {.op = "sum_losses", .shape = std::to_string(n), .bytes = 4.0 * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& losses = c.input<float>(n, positive(1, 5));
  auto& total = c.output<float>(1, normal(2));
  constexpr float kScale = 0.25f;
  double expected = total.values()[0];
  for (const double x : losses.values()) expected += static_cast<double>(kScale) * x;
  c.variant("used", [&](int i) {
    llmc::sum_losses(make_tensor(total.at(i), 1), make_tensor(losses.at(i), n), kScale,
                     bench.stream());
  });
  c.finish([&] {
    return std::vector{compare("total", total.values(), {expected}, tolerance<float>(n))};
  });
}

void run(Bench& bench) {
  std::vector<Shape> shapes;
  if (bench.includes(ShapeSet::small)) {
    shapes.insert(shapes.end(), {{1, 5, 8}, {7, 203, 208}, {3, 3001, 3008}});
  }
  if (bench.includes(ShapeSet::gpt2)) {
    shapes.insert(shapes.end(), {{8192, 50257, 50304}, {32768, 50257, 50304, false}});
  }
  for (const Shape s : shapes) {
    for_each_dtype(s.fp16, [&]<class T>() { fused<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { loss_alone<T>(bench, s); });
    for_each_dtype(s.fp16, [&]<class T>() { two_phases<T>(bench, s); });
    merge(bench, s.rows);
    sum_losses(bench, s.rows);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, "softmax cross-entropy and its gradient", run);
}
