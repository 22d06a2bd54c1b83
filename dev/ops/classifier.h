// The classifier: softmax, cross-entropy and d_logits in place, against three passes; the losses
// only; the two phases that vocabulary slices use, and the merge between them; the sum of the
// losses.
#pragma once

#include <array>
#include <cmath>

#include "dev/ops/shared/classifier_case.h"
#include "dev/variants/classifier_three_pass.h"

namespace llmc_dev::classifier {

using Targets = llmc::Tensor<const std::int32_t, 1>;

// Compares the gradients, which an op writes over the logits, and the losses.
template <class T>
std::vector<Comparison> compared(Shape s, const Expected& expected, const DeviceArray<T>& logits,
                                 const DeviceArray<float>& losses) {
  std::vector<Comparison> all;
  expected.template compare_gradients<T>(all, logits.rows(expected.rows, s.Vp), s.V, s.Vp);
  expected.compare_losses(all, losses.rows(expected.rows, 1), sum_terms<T>(s.Vp));
  return all;
}

template <class T>
void fused(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "fused_classifier",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .variants = {"used", "three_pass"},
                    .bytes = 2.0 * sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.output<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  set_padding(logits, s.V, s.Vp);
  set_targets(targets, s.V, false);
  const float dloss = gradient_of_row<T>(s);
  const Expected expected = expected_of(s, logits, targets, dloss);
  c.restore_each_round();
  c.variant("used", [&](int i) {
    llmc::fused_classifier<T>(make_tensor(logits.at(i), s.rows, s.Vp),
                              make_tensor(losses.at(i), s.rows), Targets{targets.at(i), {s.rows}},
                              dloss, s.V, runner.stream());
  });
  c.without("gradients", {&logits}, [&] {
    llmc::classifier_loss<T>(make_tensor(losses.data(), s.rows),
                             make_tensor<const T>(logits.data(), s.rows, s.Vp),
                             Targets{targets.data(), {s.rows}}, s.V, runner.stream());
  });
  c.variant("three_pass", [&](int i) {
    llmc::launch(classifier_three_pass_kernel<T>, llmc::Grid{s.rows, 1, 1},
                 llmc::classifier_threads<T>(s.Vp), llmc::classifier_shared(), runner.stream(),
                 logits.at(i), losses.at(i), targets.at(i), dloss, s.V, s.Vp);
  });
  c.finish([&] { return compared(s, expected, logits, losses); });
}

template <class T>
void loss_alone(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "classifier_loss",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.input<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  set_padding(logits, s.V, s.Vp);
  set_targets(targets, s.V, true);
  const Expected expected = expected_of(s, logits, targets, 1.0);
  c.variant("used", [&](int i) {
    llmc::classifier_loss<T>(make_tensor(losses.at(i), s.rows),
                             make_tensor(logits.at(i), s.rows, s.Vp),
                             Targets{targets.at(i), {s.rows}}, s.V, runner.stream());
  });
  c.finish([&] {
    std::vector<Comparison> all;
    expected.compare_losses(all, losses.rows(expected.rows, 1), sum_terms<T>(s.Vp));
    return all;
  });
}

// Runs both phases on one slice, which is the whole vocabulary. The statistics between them are a
// few numbers per row.
template <class T>
void two_phases(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "classifier_two_phases",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 3.0 * sizeof(T) * s.n()});
  if (!c.is_selected()) return;
  auto& logits = c.output<T>(s.rows * s.Vp, normal(1, 3));
  auto& targets = c.input<std::int32_t>(s.rows, indices(2, s.V));
  auto& losses = c.output<float>(s.rows);
  set_padding(logits, s.V, s.Vp);
  set_targets(targets, s.V, true);
  auto& row_max = c.output<float>(s.rows);
  auto& row_sum = c.output<float>(s.rows);
  auto& target_logit = c.output<float>(s.rows);
  const float dloss = gradient_of_row<T>(s);
  const Expected expected = expected_of(s, logits, targets, dloss);
  c.restore_each_round();
  c.variant("used", [&](int i) {
    const Targets ids{targets.at(i), {s.rows}};
    const auto of_rows = [&](const DeviceArray<float>& x) { return make_tensor(x.at(i), s.rows); };
    const auto matrix = make_tensor(logits.at(i), s.rows, s.Vp);
    llmc::classifier_statistics<T>(of_rows(row_max), of_rows(row_sum), of_rows(target_logit),
                                   matrix, ids, 0, s.V, runner.stream());
    llmc::classifier_from_statistics<T>(matrix, of_rows(losses), ids, of_rows(row_max),
                                        of_rows(row_sum), of_rows(target_logit), dloss, 0, s.V,
                                        runner.stream());
  });
  c.finish([&] { return compared(s, expected, logits, losses); });
}

// A vocabulary in three slices, as on three ranks. The middle slice is one token.
template <class T>
struct Slices {
  static constexpr std::int64_t kCount = 3;

  Slices(OpCase& c, Shape s)
      : s(s),
        cuts{0, s.V / 3, s.V / 3 + 1, s.V},
        targets(c.input<std::int32_t>(s.rows, indices(1, s.V))) {
    set_targets(targets, s.V, true);
    for (std::int64_t j = 0; j < kCount; ++j) {
      logits[j] = &c.output<T>(s.rows * pitch(j), normal(static_cast<std::uint32_t>(2 + j), 3));
      losses[j] = &c.output<float>(s.rows);
      set_padding(*logits[j], width(j), pitch(j));
    }
    for (auto& x : statistics) x = &c.output<float>(kCount * s.rows);
    for (auto& x : merged) x = &c.output<float>(s.rows);
  }

  std::int64_t width(std::int64_t j) const { return cuts[j + 1] - cuts[j]; }
  std::int64_t pitch(std::int64_t j) const { return llmc::round_up(width(j), 8); }

  void run(int set, float dloss, Stream& stream) const {
    const Targets ids{targets.at(set), {s.rows}};
    const auto of_slice = [&](int k, std::int64_t j) {
      return make_tensor(statistics[k]->at(set) + j * s.rows, s.rows);
    };
    const auto of_all = [&](int k) { return make_tensor(statistics[k]->at(set), kCount, s.rows); };
    const auto of_rows = [&](int k) { return make_tensor(merged[k]->at(set), s.rows); };
    const auto matrix = [&](std::int64_t j) {
      return make_tensor(logits[j]->at(set), s.rows, pitch(j));
    };
    for (std::int64_t j = 0; j < kCount; ++j) {
      llmc::classifier_statistics<T>(of_slice(0, j), of_slice(1, j), of_slice(2, j), matrix(j), ids,
                                     cuts[j], cuts[j + 1], stream);
    }
    llmc::merge_classifier_statistics(of_rows(0), of_rows(1), of_rows(2), of_all(0), of_all(1),
                                      of_all(2), stream);
    for (std::int64_t j = 0; j < kCount; ++j) {
      llmc::classifier_from_statistics<T>(matrix(j), make_tensor(losses[j]->at(set), s.rows), ids,
                                          of_rows(0), of_rows(1), of_rows(2), dloss, cuts[j],
                                          cuts[j + 1], stream);
    }
  }

  // The rows of the slices, side by side: the V columns of the vocabulary, then, if `padding`, the
  // padding of all slices.
  oracle::Vec side_by_side(bool padding) const {
    std::array<oracle::Vec, kCount> values;
    for (std::int64_t j = 0; j < kCount; ++j) values[j] = logits[j]->values();
    oracle::Vec all;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const auto append = [&](std::int64_t j, std::int64_t first, std::int64_t end) {
        const auto row = values[j].begin() + r * pitch(j);
        all.insert(all.end(), row + first, row + end);
      };
      for (std::int64_t j = 0; j < kCount; ++j) append(j, 0, width(j));
      for (std::int64_t j = 0; j < kCount && padding; ++j) append(j, width(j), pitch(j));
    }
    return all;
  }
  std::int64_t total_pitch() const { return pitch(0) + pitch(1) + pitch(2); }

  Shape s;
  std::array<std::int64_t, kCount + 1> cuts;
  DeviceArray<std::int32_t>& targets;
  std::array<DeviceArray<T>*, kCount> logits;
  std::array<DeviceArray<float>*, kCount> losses;
  // Maximum, sum and the target's logit, of the slices and of whole rows.
  std::array<DeviceArray<float>*, 3> statistics, merged;
};

template <class T>
void three_slices(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "classifier_slices",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 3.0 * sizeof(T) * s.n(),
                    .timed = false});
  if (!c.is_selected()) return;
  const Slices<T> slices(c, s);
  const float dloss = gradient_of_row<T>(s);
  const Expected expected(sample(s.rows, s.rows), slices.side_by_side(false), slices.targets, s.V,
                          dloss);
  c.variant("used", [&](int i) { slices.run(i, dloss, runner.stream()); });
  c.finish([&] {
    std::vector<Comparison> all;
    expected.template compare_gradients<T>(all, slices.side_by_side(true), s.V,
                                           slices.total_pitch());
    const oracle::Vec losses = slices.losses[0]->values();
    expected.compare_losses(all, losses, sum_terms<T>(s.Vp));
    for (const auto* others : slices.losses) {
      all.push_back(compare("losses of the slices", others->values(), losses, 0));
    }
    return all;
  });
}

// Merges the statistics of two slices into those of the whole vocabulary, for each row.
inline void merge(OpRunner& runner, std::int64_t rows) {
  constexpr std::int64_t kSlices = 2;
  const std::int64_t n = kSlices * rows;
  OpCase c(runner, {.op = "merge_statistics",
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
                                      runner.stream());
  });
  const oracle::Vec max = all_max.values(), sum = all_sum.values(), target = all_target.values();
  oracle::Vec expected_max, expected_sum, expected_target;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double highest = std::max(max[r], max[r + rows]);
    expected_max.push_back(highest);
    expected_sum.push_back(sum[r] * std::exp(max[r] - highest) +
                           sum[r + rows] * std::exp(max[r + rows] - highest));
    expected_target.push_back(target[r] + target[r + rows]);
  }
  c.finish([&] {
    return std::vector{
        compare("max", row_max.values(), expected_max, 0),
        compare("sum", row_sum.values(), expected_sum, tolerance<float>()),
        compare("target", target_logit.values(), expected_target, tolerance<float>())};
  });
}

inline void sum_losses(OpRunner& runner, std::int64_t n) {
  OpCase c(runner,
           {.op = "sum_losses", .shape = std::to_string(n), .bytes = 4.0 * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& losses = c.input<float>(n, positive(1, 5));
  auto& total = c.output<float>(1, normal(2));
  constexpr float kScale = 0.25f;
  double expected = total.values()[0];
  for (const double x : losses.values()) expected += static_cast<double>(kScale) * x;
  // A thread adds its share of the losses, and the block adds the threads' sums in 10 steps.
  const std::int64_t terms = ceil_div(n, llmc::array_sum_threads(n)) + 10;
  c.variant("used", [&](int i) {
    llmc::sum_losses(make_tensor(total.at(i), 1), make_tensor(losses.at(i), n), kScale,
                     runner.stream());
  });
  c.finish([&] {
    return std::vector{compare("total", total.values(), {expected}, tolerance<float>(terms))};
  });
}

inline void cases(OpRunner& runner) {
  const Shapes<Shape> shapes = {
      .tiny = {{1, 7, 8}, {5, 40, 40}, {3, 257, 320}, {2, 1, 8}},
      .small = {{1, 5, 8}, {7, 203, 208}, {3, 3001, 3008}, {3, 50257, 50304}, {37, 1001, 1008}},
      .gpt2 = {{8192, 50257, 50304}, {32768, 50257, 50304, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { fused<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { loss_alone<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { two_phases<T>(runner, s); });
  }
  const Shapes<Shape> sliced = {.tiny = shapes.tiny, .small = shapes.small, .gpt2 = {}};
  for (const Shape s : runner.select(sliced)) {
    if (s.V < 7) continue;  // too few tokens for three slices
    for_each_dtype(runner, s.fp16, [&]<class T>() { three_slices<T>(runner, s); });
  }
  const Shapes<std::int64_t> rows = {
      .tiny = {1, 3, 8, 1001}, .small = {7, 40003}, .gpt2 = {8192, 32768}};
  for (const std::int64_t n : runner.select(rows)) {
    merge(runner, n);
    sum_losses(runner, n);
  }
}

}  // namespace llmc_dev::classifier
