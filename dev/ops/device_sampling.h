// Samples the next token of each sequence on the device, in one launch. The roof covers reading the
// logits once; ops/sampling.h samples the same kind of logits on the host.
#pragma once

#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/infer/generate.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/host_sampling.h"

namespace llmc_dev::device_sampling {

using llmc::make_tensor;
using llmc::SamplingOptions;

struct Shape {
  std::int64_t rows, V, Vp;
};

struct Choice {
  const char* name;
  SamplingOptions options;
};

inline constexpr std::uint64_t kSeed = 1;
inline constexpr std::int64_t kMaxLength = 8;  // of a sequence; each has one token
inline constexpr std::int32_t kEnd = 7, kNoStop = -1;

inline std::vector<double> expected_tokens(const DeviceArray<float>& logits, const Shape& s,
                                           const SamplingOptions& options) {
  std::vector<double> tokens;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const std::vector<double> row = logits.values(r * s.Vp, s.V);
    const double uniform = llmc::sampling_uniform(kSeed, 0, r, 1);
    tokens.push_back(
        llmc::sample_token_reference({row.begin(), row.end()}, options, {0}, uniform).token);
  }
  return tokens;
}

inline void device_sampling(OpRunner& runner, Shape s, const Choice& choice) {
  OpCase c(runner, {.op = choice.name,
                    .shape = by(s.rows, s.V),
                    .dtype = kDtypeOf<float>,
                    .bytes = sizeof(float) * static_cast<double>(s.rows * s.V)});
  if (!c.is_selected()) return;
  const Fill zeros = indices(1, 1);
  auto& logits = c.input<float>(s.rows * s.Vp, normal(1, 3));
  auto& position = c.input<std::int32_t>(s.rows, zeros);
  auto& token = c.input<std::int32_t>(s.rows, zeros);
  auto& finish = c.input<std::int32_t>(s.rows, zeros);  // active
  auto& history = c.input<std::int32_t>(s.rows * kMaxLength, zeros);
  auto& scratch = c.input<float>(llmc::sampling_scratch(s.rows, s.V), kUnwritten);
  auto& log_probability = c.output<float>(s.rows);
  auto& drawn = c.output<std::int32_t>(s.rows, zeros);
  std::vector<llmc::SlotSampling> slots;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    slots.push_back(
        llmc::slot_sampling(choice.options, kSeed, static_cast<std::uint32_t>(r), kEnd, kNoStop));
  }
  const llmc::Buffer<llmc::SlotSampling> options(s.rows);
  llmc::copy_to_device(options.data(), slots.data(), s.rows, runner.stream());
  runner.stream().synchronize();
  c.variant("used", [&](int i) {
    // Every run draws the token at position 1.
    llmc::fill_zero(position.at(i), s.rows, runner.stream());
    const llmc::SlotState state{
        make_tensor(token.at(i), s.rows), make_tensor(position.at(i), s.rows),
        make_tensor(history.at(i), s.rows, kMaxLength), make_tensor(log_probability.at(i), s.rows),
        make_tensor(finish.at(i), s.rows)};
    llmc::sample_next_tokens(state, make_tensor(drawn.at(i), s.rows),
                             make_tensor(logits.at(i), s.rows, s.Vp), s.V, {},
                             make_tensor<const llmc::SlotSampling>(options.data(), s.rows), {}, {},
                             make_tensor(scratch.at(i), scratch.size()), runner.stream());
  });
  c.finish([&] {
    const std::vector<double> expected = expected_tokens(logits, s, choice.options);
    std::vector<double> log_p;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const std::vector<double> row = logits.values(r * s.Vp, s.V);
      double sum = 0;
      for (const double x : row) sum += std::exp(x);  // logits are below 20
      log_p.push_back(row[static_cast<std::size_t>(expected[r])] - std::log(sum));
    }
    // fp32 rounds the logarithms of the sum and of the token's share; near 0 they cancel.
    return std::vector{compare("tokens", drawn.values(), expected, 0),
                       compare("log p", log_probability.values(), log_p, 4e-6)};
  });
}

inline void cases(OpRunner& runner) {
  const std::vector<Choice> choices = {{"device_sample_greedy", {.temperature = 0}},
                                       {"device_sample_temperature", {.temperature = 0.7}},
                                       {"device_sample_top_k", {.temperature = 0.7, .top_k = 40}},
                                       {"device_sample_top_p", {.temperature = 0.7, .top_p = 0.9}},
                                       {"device_sample_min_p", {.min_p = 0.05}},
                                       {"device_sample_typical", {.typical = 0.9}}};
  const Shapes<Shape> shapes = {.tiny = {{3, 5, 8}, {7, 203, 208}},
                                .small = {{2, 50257, 50304}},
                                .gpt2 = {{1, 50257, 50304}, {8, 50257, 50304}, {64, 50257, 50304}}};
  for (const Shape s : runner.select(shapes)) {
    for (const Choice& choice : choices) device_sampling(runner, s, choice);
  }
}

}  // namespace llmc_dev::device_sampling
