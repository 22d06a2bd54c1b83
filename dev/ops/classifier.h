// The classifier: softmax, cross-entropy and d_logits in place, against three passes; the losses
// only; the two phases that vocabulary slices use, the merge between them, and the losses only from
// merged statistics; the sum of the losses.
#pragma once

#include <array>
#include <cmath>

#include "dev/ops/shared/classifier_case.h"
#include "dev/variants/classifier_three_pass.h"
#include "llmc/ops/classifier_row.h"
#include "llmc/ops/classifier_slices.h"

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
  auto& statistics = c.output<float>(3 * s.rows);
  const float dloss = gradient_of_row<T>(s);
  const Expected expected = expected_of(s, logits, targets, dloss);
  c.restore_each_round();
  const auto first_phase = [&](int i) {
    llmc::classifier_statistics<T>(make_tensor(statistics.at(i), 3, s.rows),
                                   make_tensor(logits.at(i), s.rows, s.Vp),
                                   Targets{targets.at(i), {s.rows}}, {0, s.V}, runner.stream());
  };
  c.variant("used", [&](int i) {
    first_phase(i);
    llmc::classifier_from_statistics<T>(
        make_tensor(logits.at(i), s.rows, s.Vp), make_tensor(losses.at(i), s.rows),
        Targets{targets.at(i), {s.rows}}, make_tensor(statistics.at(i), 3, s.rows), dloss, {0, s.V},
        runner.stream());
  });
  c.without("gradients", {&logits}, [&] {
    first_phase(0);
    llmc::classifier_loss_from_statistics(
        make_tensor(losses.data(), s.rows), Targets{targets.data(), {s.rows}},
        make_tensor(statistics.data(), 3, s.rows), runner.stream());
  });
  c.finish([&] { return compared(s, expected, logits, losses); });
}

// A vocabulary in slices, as on five ranks: an uneven cut, one token, an empty slice, the rest, and
// an empty slice at the end. Every slice has the padded width of the widest, as on ranks.
template <class T>
struct Slices {
  static constexpr std::int64_t kCount = 5;

  Slices(OpCase& c, Shape s)
      : s(s),
        cuts{0, s.V / 3, s.V / 3 + 1, s.V / 3 + 1, s.V, s.V},
        targets(c.input<std::int32_t>(s.rows, indices(1, s.V))) {
    set_targets(targets, s.V, true);
    // Multiplies the gradients by 1/2.
    factor = &c.input<float>(1, normal(1, 0, 0.5f));
    for (std::int64_t j = 0; j < kCount; ++j) {
      logits[j] = &c.output<T>(s.rows * pitch(), normal(static_cast<std::uint32_t>(2 + j), 3));
      losses[j] = &c.output<float>(s.rows);
      set_padding(*logits[j], slice(j).size(), pitch());
    }
    gathered = &c.output<float>(kCount * 3 * s.rows);
    merged = &c.output<float>(3 * s.rows);
    losses_only = &c.output<float>(s.rows);
  }

  llmc::VocabularySlice slice(std::int64_t j) const { return {cuts[j], cuts[j + 1]}; }
  std::int64_t pitch() const { return llmc::round_up(s.V - s.V / 3, 8); }

  void run(int set, float dloss, Stream& stream) const {
    const Targets ids{targets.at(set), {s.rows}};
    const auto matrix = [&](std::int64_t j) {
      return make_tensor(logits[j]->at(set), s.rows, pitch());
    };
    const auto statistics = make_tensor(merged->at(set), 3, s.rows);
    for (std::int64_t j = 0; j < kCount; ++j) {
      llmc::classifier_statistics<T>(make_tensor(gathered->at(set) + j * 3 * s.rows, 3, s.rows),
                                     matrix(j), ids, slice(j), stream);
    }
    llmc::merge_classifier_statistics(statistics, make_tensor(gathered->at(set), kCount, 3, s.rows),
                                      stream);
    for (std::int64_t j = 0; j < kCount; ++j) {
      llmc::classifier_from_statistics<T>(matrix(j), make_tensor(losses[j]->at(set), s.rows), ids,
                                          statistics, 2 * dloss, slice(j), stream, factor->at(set));
    }
    llmc::classifier_loss_from_statistics(make_tensor(losses_only->at(set), s.rows), ids,
                                          statistics, stream);
  }

  // The rows of the slices, one after the other: the V columns of the vocabulary, then, if
  // `padding`, the padding of all slices.
  oracle::Vec whole_rows(bool padding) const {
    std::array<oracle::Vec, kCount> values;
    for (std::int64_t j = 0; j < kCount; ++j) values[j] = logits[j]->values();
    oracle::Vec all;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const auto append = [&](std::int64_t j, std::int64_t first, std::int64_t end) {
        const auto row = values[j].begin() + r * pitch();
        all.insert(all.end(), row + first, row + end);
      };
      for (std::int64_t j = 0; j < kCount; ++j) append(j, 0, slice(j).size());
      for (std::int64_t j = 0; j < kCount && padding; ++j) append(j, slice(j).size(), pitch());
    }
    return all;
  }

  Shape s;
  std::array<std::int64_t, kCount + 1> cuts;
  DeviceArray<std::int32_t>& targets;
  std::array<DeviceArray<T>*, kCount> logits;
  std::array<DeviceArray<float>*, kCount> losses;
  DeviceArray<float>* factor;
  DeviceArray<float>* gathered;  // statistics of the slices
  DeviceArray<float>* merged;    // statistics of whole rows
  DeviceArray<float>* losses_only;
};

template <class T>
void five_slices(OpRunner& runner, Shape s) {
  OpCase c(runner, {.op = "classifier_slices",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 3.0 * sizeof(T) * s.n(),
                    .timed = false});
  if (!c.is_selected()) return;
  const Slices<T> slices(c, s);
  const float dloss = gradient_of_row<T>(s);
  const Expected expected(sample(s.rows, s.rows), slices.whole_rows(false), slices.targets, s.V,
                          dloss);
  c.variant("used", [&](int i) { slices.run(i, dloss, runner.stream()); });
  c.finish([&] {
    std::vector<Comparison> all;
    expected.template compare_gradients<T>(all, slices.whole_rows(true), s.V,
                                           Slices<T>::kCount * slices.pitch());
    const oracle::Vec losses = slices.losses[0]->values();
    expected.compare_losses(all, losses, sum_terms<T>(s.Vp));
    for (const auto* others : slices.losses) {
      all.push_back(compare("losses of the slices", others->values(), losses, 0));
    }
    all.push_back(compare("losses without gradients", slices.losses_only->values(), losses, 0));
    return all;
  });
}

// Merges the statistics of two slices into those of the whole vocabulary, for each row.
inline void merge(OpRunner& runner, std::int64_t rows) {
  constexpr std::int64_t kSlices = 2;
  OpCase c(runner, {.op = "merge_statistics",
                    .shape = by(kSlices, rows),
                    .bytes = 12.0 * static_cast<double>((kSlices + 1) * rows)});
  if (!c.is_selected()) return;
  // Maxima and targets' logits are as large as logits, so that both slices count.
  auto& all = c.input<float>(kSlices * 3 * rows, positive(1, 3));
  auto& statistics = c.output<float>(3 * rows);
  c.variant("used", [&](int i) {
    llmc::merge_classifier_statistics(make_tensor(statistics.at(i), 3, rows),
                                      make_tensor(all.at(i), kSlices, 3, rows), runner.stream());
  });
  const oracle::Vec x = all.values();
  oracle::Vec max, sum, target;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto first = x.begin() + r, second = first + 3 * rows;
    max.push_back(std::max(first[0], second[0]));
    sum.push_back(first[rows] * std::exp(first[0] - max.back()) +
                  second[rows] * std::exp(second[0] - max.back()));
    target.push_back(first[2 * rows] + second[2 * rows]);
  }
  c.finish([&] {
    return std::vector{
        compare("max", statistics.values(0, rows), max, 0),
        compare("sum", statistics.values(rows, rows), sum, tolerance<float>()),
        compare("target", statistics.values(2 * rows, rows), target, tolerance<float>())};
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
    if (s.V == 1) continue;  // the loss is 0, so its relative error is undefined
    for_each_dtype(runner, s.fp16, [&]<class T>() { five_slices<T>(runner, s); });
  }
  const Shapes<std::int64_t> rows = {
      .tiny = {1, 3, 8, 1001}, .small = {7, 40003}, .gpt2 = {8192, 32768}};
  for (const std::int64_t n : runner.select(rows)) {
    merge(runner, n);
    sum_losses(runner, n);
  }
}

}  // namespace llmc_dev::classifier
