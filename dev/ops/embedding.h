// Token plus position embedding, forward and backward. Token frequencies follow Zipf's law: the
// i-th most frequent token occurs about 1/i as often as the first.
#pragma once

#include <cmath>
#include <random>

#include "dev/harness/op_case.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/token_buckets.h"
#include "test/oracle/ops.h"

namespace llmc_dev::embedding {

namespace oracle = llmc::oracle;
using Tokens = llmc::Tensor<const std::int32_t, 1>;

constexpr std::int64_t kSampledRows = 1024;
constexpr std::int64_t kPadding = 3;  // rows of wte after the vocabulary

struct Shape {
  std::int64_t B, T, C, V;
  std::int64_t context;  // rows of wpe
  bool fp16 = true;
  std::int64_t rows() const { return B * T; }
  std::int64_t wte_rows() const { return V + kPadding; }
  std::string text() const {
    return by(B, T) + "x" + std::to_string(C) + " V " + std::to_string(V);
  }
};

// Id 1 does not occur: otherwise, in a small vocabulary, the number of each bucket would be its id.
inline std::vector<std::int32_t> zipf_tokens(Shape s) {
  std::mt19937_64 bits(5);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < s.rows(); ++i) {
    const double uniform = static_cast<double>(bits() >> 11) * 0x1p-53;
    const double rank = std::exp(uniform * std::log(static_cast<double>(s.V + 1)));
    const auto id = std::min<std::int64_t>(s.V - 2, static_cast<std::int64_t>(rank) - 1);
    tokens.push_back(static_cast<std::int32_t>(id == 0 ? 0 : id + 1));
  }
  return tokens;
}

// At most kSampledRows rows of wte whose token does not occur. The last one is padding.
inline std::vector<std::int64_t> rows_without_token(const std::vector<std::int32_t>& tokens,
                                                    std::int64_t wte_rows) {
  std::vector<bool> occurs(static_cast<std::size_t>(wte_rows));
  for (const std::int32_t token : tokens) occurs[token] = true;
  std::vector<std::int64_t> all, sampled;
  for (std::int64_t row = 0; row < wte_rows; ++row) {
    if (!occurs[row]) all.push_back(row);
  }
  for (const std::int64_t i : sample(std::ssize(all), kSampledRows)) sampled.push_back(all[i]);
  return sampled;
}

template <class T>
void forward(OpRunner& runner, Shape s) {
  const auto tokens = zipf_tokens(s);
  const auto distinct = static_cast<std::int64_t>(llmc::make_token_buckets(tokens).token.size());
  OpCase c(runner, {.op = "embedding_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>((s.rows() + distinct + s.T) * s.C)});
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> ids(tokens, runner.stream());
  auto& wte = c.input<T>(s.wte_rows() * s.C, normal(1));
  auto& wpe = c.input<T>(s.context * s.C, normal(2));
  auto& out = c.output<T>(s.rows() * s.C);
  c.variant("used", [&](int i) {
    llmc::embedding_forward<T>(make_tensor(out.at(i), s.rows(), s.C),
                               Tokens{ids.data(), {s.rows()}},
                               make_tensor(wte.at(i), s.wte_rows(), s.C),
                               make_tensor(wpe.at(i), s.context, s.C), s.T, runner.stream());
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
void backward(OpRunner& runner, Shape s) {
  const auto tokens = zipf_tokens(s);
  const llmc::TokenBuckets host_buckets = llmc::make_token_buckets(tokens);
  const auto distinct = static_cast<std::int64_t>(host_buckets.token.size());
  const double read = sizeof(T) * static_cast<double>(s.rows() * s.C);
  OpCase c(runner, {.op = "embedding_backward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = read + 8.0 * static_cast<double>((distinct + s.T) * s.C)});
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> token(host_buckets.token, runner.stream());
  const DeviceArray<std::int32_t> start(host_buckets.start, runner.stream());
  const DeviceArray<std::int32_t> position(host_buckets.position, runner.stream());
  const llmc::TokenBucketsView buckets{token.data(), start.data(), position.data(), distinct};
  auto& d_out = c.input<T>(s.rows() * s.C, normal(1));
  auto& d_wte = c.output<float>(s.wte_rows() * s.C, normal(2));
  auto& d_wpe = c.output<float>(s.context * s.C, normal(3));
  oracle::Vec expected_wte = d_wte.values(), expected_wpe = d_wpe.values();
  const auto run = [&](int i, bool wte_frozen = false, bool wpe_frozen = false) {
    llmc::embedding_backward<T>(make_tensor(wte_frozen ? nullptr : d_wte.at(i), s.wte_rows(), s.C),
                                make_tensor(wpe_frozen ? nullptr : d_wpe.at(i), s.context, s.C),
                                make_tensor(d_out.at(i), s.rows(), s.C), buckets, s.T,
                                runner.stream());
  };
  c.variant("used", [&](int i) { run(i); });
  c.without("d_wte", {&d_wte}, [&] { run(0, true, false); });
  c.without("d_wpe", {&d_wpe}, [&] { run(0, false, true); });
  c.without("d_wte and d_wpe", {&d_wte, &d_wpe}, [&] { run(0, true, true); });
  // Rows of other tokens, the padding, and the positions from T on keep their values exactly.
  const auto other_tokens = rows_without_token(tokens, s.wte_rows());
  const std::int64_t first_unused = s.T * s.C, unused = (s.context - s.T) * s.C;
  const oracle::Vec kept_wte = d_wte.rows(other_tokens, s.C),
                    kept_wpe = d_wpe.values(first_unused, unused);
  const auto d = oracle::embedding_backward(d_out.values(), {tokens.begin(), tokens.end()}, s.B,
                                            s.T, s.C, s.wte_rows(), s.context);
  oracle::add_to(expected_wte, d.wte);
  oracle::add_to(expected_wpe, d.wpe);
  c.finish([&] {
    return std::vector{
        compare("d_wte", d_wte.values(), expected_wte, tolerance<float>(s.rows())),
        compare("d_wpe", d_wpe.values(), expected_wpe, tolerance<float>(s.B)),
        compare("d_wte of other tokens", d_wte.rows(other_tokens, s.C), kept_wte, 0),
        compare("d_wpe of other positions", d_wpe.values(first_unused, unused), kept_wpe, 0)};
  });
}

inline void cases(OpRunner& runner) {
  const Shapes<Shape> shapes = {
      .tiny = {{1, 1, 8, 3, 1}, {2, 9, 40, 4, 11}},
      .small = {{3, 7, 264, 11, 7},
                {2, 33, 768, 50, 64},
                {2, 90, 264, 4, 91},  // long buckets, several tiles
                {1, 19, 1600, 29, 20},
                {9, 101, 8, 5, 101}},
      .gpt2 = {{32, 1024, 768, 50257, 1024}, {16, 1024, 1600, 50257, 1024, false}}};
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { backward<T>(runner, s); });
  }
}

}  // namespace llmc_dev::embedding
