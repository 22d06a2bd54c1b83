// Token plus position embedding, forward and backward, of the whole vocabulary and of slices.
// Token frequencies follow Zipf's law: the i-th most frequent token occurs about 1/i as often as
// the first.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/quantize.h"
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
  std::int64_t begin = 0, end = -1;  // slice of the vocabulary; an end of -1 means V
  // Rows that position_embedding_backward gets; a count of -1 means all.
  std::int64_t first_row = 0, row_count = -1;

  std::int64_t rows() const { return B * T; }
  llmc::VocabularySlice slice() const { return {begin, end < 0 ? V : end}; }
  std::int64_t wte_rows() const { return slice().size() + kPadding; }
  std::int64_t part_rows() const { return row_count < 0 ? rows() : row_count; }
  std::string text() const {
    return by(B, T) + "x" + std::to_string(C) + " V " + std::to_string(V) +
           (end < 0 ? "" : " slice " + std::to_string(begin) + "-" + std::to_string(end));
  }
  std::string part_text() const {
    return by(B, T) + "x" + std::to_string(C) +
           (row_count < 0 ? ""
                          : " rows " + std::to_string(first_row) + "+" + std::to_string(row_count));
  }
};

// Id 1 does not occur: otherwise, in a small vocabulary, the number of each bucket would be its id.
inline std::vector<std::int32_t> zipf_tokens(const Shape& s) {
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

// The row of wte of each token, or wte_rows() if the slice does not hold the token.
inline oracle::Ints rows_of_tokens(const Shape& s, const std::vector<std::int32_t>& tokens) {
  oracle::Ints rows;
  for (const std::int32_t token : tokens) {
    const bool in_slice = token >= s.begin && token < s.slice().end;
    rows.push_back(static_cast<int>(in_slice ? token - s.begin : s.wte_rows()));
  }
  return rows;
}

inline std::int64_t count_distinct(const Shape& s, const oracle::Ints& wte_rows) {
  const std::set<std::int64_t> distinct(wte_rows.begin(), wte_rows.end());
  return std::ssize(distinct) - static_cast<std::int64_t>(distinct.count(s.wte_rows()));
}

// At most kSampledRows of `count` rows, all of which are not in `used`.
inline std::vector<std::int64_t> unused_rows(const oracle::Ints& used, std::int64_t count) {
  const std::set<std::int64_t> in_use(used.begin(), used.end());
  std::vector<std::int64_t> all, sampled;
  for (std::int64_t row = 0; row < count; ++row) {
    if (!in_use.contains(row)) all.push_back(row);
  }
  for (const std::int64_t i : sample(std::ssize(all), kSampledRows)) sampled.push_back(all[i]);
  return sampled;
}

template <class T>
void forward(OpRunner& runner, const Shape& s) {
  const auto tokens = zipf_tokens(s);
  const auto wte_row = rows_of_tokens(s, tokens);
  OpCase c(runner, {.op = "embedding_forward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(
                                             (s.rows() + count_distinct(s, wte_row) + s.T) * s.C)});
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> ids(tokens, runner.stream());
  auto& wte = c.input<T>(s.wte_rows() * s.C, normal(1));
  auto& wpe = c.input<T>(s.context * s.C, normal(2));
  auto& out = c.output<T>(s.rows() * s.C);
  c.variant("used", [&](int i) {
    llmc::embedding_forward<T>(
        make_tensor(out.at(i), s.rows(), s.C), Tokens{ids.data(), {s.rows()}},
        make_tensor(wte.at(i), s.wte_rows(), s.C), make_tensor(wpe.at(i), s.context, s.C), s.T,
        s.slice(), runner.stream());
  });
  std::vector<std::int64_t> rows, other_rows;  // with tokens of the slice, and without
  for (const std::int64_t r : sample(s.rows(), kSampledRows)) {
    (wte_row[r] < s.wte_rows() ? rows : other_rows).push_back(r);
  }
  oracle::Vec expected;
  for (const std::int64_t r : rows) {
    const auto row = oracle::embedding_forward({0}, wte.values(wte_row[r] * s.C, s.C),
                                               wpe.values(r % s.T * s.C, s.C), 1, 1, s.C);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const oracle::Vec zeros(other_rows.size() * static_cast<std::size_t>(s.C));
  c.finish([&] {
    return std::vector{compare("out", out.rows(rows, s.C), expected, tolerance<T>()),
                       compare("rows of other slices", out.rows(other_rows, s.C), zeros, 0)};
  });
}

// With tokens as codes times the scale of their row: the bits of the quantizer's definition.
template <class T>
void quantized_forward(OpRunner& runner, const Shape& s) {
  const auto tokens = zipf_tokens(s);
  const auto wte_row = rows_of_tokens(s, tokens);
  OpCase c(runner, {.op = "embedding_forward quantized",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(
                                             (s.rows() + count_distinct(s, wte_row) + s.T) * s.C)});
  if (!c.is_selected()) return;
  const DeviceArray<std::int32_t> ids(tokens, runner.stream());
  auto& wte = c.input<T>(s.wte_rows() * s.C, normal(1));
  auto& scales = c.input<float>(s.wte_rows(), positive(4, 0.02f));
  auto& wpe = c.input<T>(s.context * s.C, normal(2));
  auto& out = c.output<T>(s.rows() * s.C);
  c.variant("used", [&](int i) {
    llmc::embedding_forward<T>(
        make_tensor(out.at(i), s.rows(), s.C), Tokens{ids.data(), {s.rows()}},
        make_tensor(wte.at(i), s.wte_rows(), s.C), make_tensor(wpe.at(i), s.context, s.C), s.T,
        s.slice(), runner.stream(), nullptr, make_tensor(scales.at(i), s.wte_rows()));
  });
  std::vector<std::int64_t> rows;  // with tokens of the slice
  for (const std::int64_t r : sample(s.rows(), 64)) {
    if (wte_row[r] < s.wte_rows()) rows.push_back(r);
  }
  oracle::Vec expected;
  for (const std::int64_t r : rows) {
    const auto scale = static_cast<float>(scales.values(wte_row[r], 1)[0]);
    const llmc::CodeRounding rounding({scale, 0});
    const auto token = wte.values(wte_row[r] * s.C, s.C);
    const auto position = wpe.values(r % s.T * s.C, s.C);
    for (std::int64_t k = 0; k < s.C; ++k) {
      const auto code = static_cast<float>(rounding.code(static_cast<float>(token[k])));
      const float sum = std::fma(code, scale, static_cast<float>(position[k]));
      expected.push_back(static_cast<double>(llmc::to_float(llmc::from_float<T>(sum))));
    }
  }
  c.finish([&] { return std::vector{compare("out", out.rows(rows, s.C), expected, 0)}; });
}

template <class T>
void token_backward(OpRunner& runner, const Shape& s) {
  const auto tokens = zipf_tokens(s);
  const auto wte_row = rows_of_tokens(s, tokens);
  const std::int64_t count = s.rows() - std::ranges::count(wte_row, s.wte_rows());
  OpCase c(runner, {.op = "token_embedding_backward",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(count * s.C) +
                             8.0 * static_cast<double>(count_distinct(s, wte_row) * s.C)});
  if (!c.is_selected()) return;
  const llmc::TokenBuckets host_buckets = llmc::make_token_buckets(tokens);
  const DeviceArray<std::int32_t> token(host_buckets.token, runner.stream());
  const DeviceArray<std::int32_t> start(host_buckets.start, runner.stream());
  const DeviceArray<std::int32_t> position(host_buckets.position, runner.stream());
  const llmc::TokenBucketsView buckets{token.data(), start.data(), position.data(),
                                       std::ssize(host_buckets.token)};
  auto& d_out = c.input<T>(s.rows() * s.C, normal(1));
  auto& d_wte = c.output<float>(s.wte_rows() * s.C, normal(2));
  const auto run = [&](float* to, int i) {
    llmc::token_embedding_backward<T>(make_tensor(to, s.wte_rows(), s.C),
                                      make_tensor(d_out.at(i), s.rows(), s.C), buckets, s.slice(),
                                      runner.stream());
  };
  c.variant("used", [&](int i) { run(d_wte.at(i), i); });
  c.without("d_wte", {&d_wte}, [&] { run(nullptr, 0); });
  // Rows of other tokens and the padding keep their values exactly.
  const auto other_rows = unused_rows(wte_row, s.wte_rows());
  const oracle::Vec kept = d_wte.rows(other_rows, s.C);
  // The oracle has one row more, for the tokens of other slices.
  oracle::Vec expected = d_wte.values();
  oracle::Vec d = oracle::embedding_backward(d_out.values(), wte_row, s.B, s.T, s.C,
                                             s.wte_rows() + 1, s.context)
                      .wte;
  d.resize(expected.size());
  oracle::add_to(expected, d);
  c.finish([&] {
    return std::vector{compare("d_wte", d_wte.values(), expected, tolerance<float>(s.rows())),
                       compare("d_wte of other tokens", d_wte.rows(other_rows, s.C), kept, 0)};
  });
}

template <class T>
void position_backward(OpRunner& runner, const Shape& s) {
  const std::int64_t n = s.part_rows();
  OpCase c(runner, {.op = "position_embedding_backward",
                    .shape = s.part_text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * static_cast<double>(n * s.C) +
                             8.0 * static_cast<double>(std::min(n, s.T) * s.C)});
  if (!c.is_selected()) return;
  auto& d_out = c.input<T>(n * s.C, normal(1));
  auto& d_wpe = c.output<float>(s.context * s.C, normal(3));
  const auto run = [&](float* to, int i) {
    llmc::position_embedding_backward<T>(make_tensor(to, s.context, s.C),
                                         make_tensor(d_out.at(i), n, s.C), s.first_row, s.T,
                                         runner.stream());
  };
  c.variant("used", [&](int i) { run(d_wpe.at(i), i); });
  c.without("d_wpe", {&d_wpe}, [&] { run(nullptr, 0); });
  // Positions without a row keep their values exactly.
  oracle::Ints positions;
  for (std::int64_t i = 0; i < n; ++i) {
    positions.push_back(static_cast<int>((s.first_row + i) % s.T));
  }
  const auto other_positions = unused_rows(positions, s.context);
  const oracle::Vec kept = d_wpe.rows(other_positions, s.C);
  // For the oracle, all rows of the batch that are not in the part are zeros.
  oracle::Vec batch(static_cast<std::size_t>(s.rows() * s.C));
  std::ranges::copy(d_out.values(), batch.begin() + s.first_row * s.C);
  oracle::Vec expected = d_wpe.values();
  oracle::add_to(
      expected,
      oracle::embedding_backward(batch, oracle::Ints(s.rows()), s.B, s.T, s.C, 1, s.context).wpe);
  c.finish([&] {
    return std::vector{
        compare("d_wpe", d_wpe.values(), expected, tolerance<float>(s.B)),
        compare("d_wpe of other positions", d_wpe.rows(other_positions, s.C), kept, 0)};
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
  for (const Shape& s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { quantized_forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { token_backward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { position_backward<T>(runner, s); });
  }
  // The first, a middle, the last and an empty slice.
  const Shapes<Shape> slices = {.tiny = {{2, 9, 40, 6, 11, true, 0, 2},
                                         {2, 9, 40, 6, 11, true, 2, 4},
                                         {2, 9, 40, 6, 11, true, 6, 6}},
                                .small = {{3, 33, 264, 31, 64, true, 0, 8},
                                          {3, 33, 264, 31, 64, true, 3, 11},
                                          {3, 33, 264, 31, 64, true, 24, 31}},
                                .gpt2 = {}};
  for (const Shape& s : runner.select(slices)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { quantized_forward<T>(runner, s); });
    for_each_dtype(runner, s.fp16, [&]<class T>() { token_backward<T>(runner, s); });
  }
  // Parts of the rows: less than a sequence, across the end of one, more than one, and the end of
  // the batch.
  const Shapes<Shape> parts = {
      .tiny = {{.B = 3, .T = 5, .C = 40, .V = 3, .context = 6, .first_row = 3, .row_count = 4},
               {.B = 3, .T = 5, .C = 40, .V = 3, .context = 6, .first_row = 7, .row_count = 8}},
      .small =
          {{.B = 2, .T = 9, .C = 264, .V = 3, .context = 9, .first_row = 1, .row_count = 1},
           {.B = 4, .T = 33, .C = 264, .V = 3, .context = 40, .first_row = 50, .row_count = 75}},
      .gpt2 = {}};
  for (const Shape& s : runner.select(parts)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { position_backward<T>(runner, s); });
  }
}

}  // namespace llmc_dev::embedding
