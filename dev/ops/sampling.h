// Samples the next token of each sequence: copies a row of logits to the host, checks that it is
// finite, and samples on the host in fp64. The times are therefore the host's; the roof covers only
// reading the logits from GPU memory.
#pragma once

#include <cmath>
#include <numeric>

#include "dev/harness/op_case.h"
#include "llmc/ops/sampling/host_sampling.h"

namespace llmc_dev::sampling {

using llmc::SamplingOptions;

struct Shape {
  std::int64_t rows, V, Vp;
};

struct Choice {
  const char* name;
  SamplingOptions options;
};

// A random number for one row, and the id that it must select.
struct Draw {
  double uniform;
  std::int32_t id;
};

// Derives a draw from the definition. Ids are sorted from the likeliest to the least likely; equal
// logits by lower id first. The ids that compete share the probability. Each id owns the interval
// of (0, 1) that begins where the intervals of lower ids end.
//
// For row 0 the number is the middle of the interval of the least likely id whose share is at least
// kLeast: the last of the top k. For other rows it is the middle of the interval at (row + 0.5) /
// rows.
inline Draw draw_for(const std::vector<double>& logits, const SamplingOptions& options,
                     std::int64_t row, std::int64_t rows) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return {0.5, ids[0]};
  if (options.top_k > 0 && options.top_k < std::ssize(ids)) ids.resize(options.top_k);
  std::vector<double> probability(logits.size());
  double total = 0;
  for (const std::int32_t id : ids) {
    total += probability[id] = std::exp((logits[id] - logits[ids[0]]) / options.temperature);
  }
  constexpr double kLeast = 1e-9;
  while (probability[ids.back()] < kLeast * total) ids.pop_back();
  const double spread = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
  double below = 0;
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    const double part = probability[id] / total;
    const bool is_last = row == 0 ? id == ids.back() : below + part > spread && part > kLeast;
    if (is_last) return {below + part / 2, id};
    below += part;
  }
  return {0.5, -1};  // unreachable: the intervals add up to 1
}

template <class T>
void sampling(OpRunner& runner, Shape s, const Choice& choice) {
  OpCase c(runner, {.op = choice.name,
                    .shape = by(s.rows, s.V),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(s.rows * s.V)});
  if (!c.is_selected()) return;
  // Around -100 half precision has few digits left, so several of the likeliest logits are equal.
  auto& logits = c.input<T>(s.rows * s.Vp, normal(1, 3, -100));
  auto& tokens = c.output<std::int32_t>(s.rows, indices(2, s.V));
  std::vector<double> uniforms, expected;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const Draw draw = draw_for(logits.values(r * s.Vp, s.V), choice.options, r, s.rows);
    uniforms.push_back(draw.uniform);
    expected.push_back(draw.id);
  }
  c.variant("used", [&](int i) {
    std::vector<T> row(static_cast<std::size_t>(s.V));
    std::vector<std::int32_t> chosen;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const T* stored = logits.at(i) + r * s.Vp;
      llmc::copy_to_host(row.data(), stored, s.V, runner.stream());
      runner.stream().synchronize();
      llmc::require_finite(row);
      chosen.push_back(llmc::sample_token(row, choice.options, uniforms[r]));
    }
    llmc::copy_to_device(tokens.at(i), chosen.data(), s.rows, runner.stream());
    runner.stream().synchronize();  // `chosen` is freed on return
  });
  c.finish([&] { return std::vector{compare("tokens", tokens.values(), expected, 0)}; });
}

inline void cases(OpRunner& runner) {
  const std::vector<Choice> choices = {{"sample_greedy", {.temperature = 0}},
                                       {"sample_temperature", {.temperature = 0.7}},
                                       {"sample_top_k", {.temperature = 0.7, .top_k = 40}}};
  const Shapes<Shape> shapes = {.tiny = {{3, 5, 8}, {7, 203, 208}},
                                .small = {{2, 50257, 50304}},
                                .gpt2 = {{8, 50257, 50304}}};
  for (const Shape s : runner.select(shapes)) {
    for (const Choice& choice : choices) {
      for_each_dtype(runner, true, [&]<class T>() { sampling<T>(runner, s, choice); });
    }
  }
}

}  // namespace llmc_dev::sampling
