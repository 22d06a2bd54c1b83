// One step of generation in each layer: storing the newest token's k and v in the cache, and its
// attention over the cache. Also storing the k and v of a whole prompt.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/attention/cached_attention.h"
#include "llmc/ops/attention/key_value_cache.h"
#include "test/oracle/ops.h"

namespace llmc_dev::cached_attention {

namespace oracle = llmc::oracle;
using Positions = llmc::Tensor<const std::int32_t, 1>;

// One new token for each of B sequences. The longest sequence then has T tokens, and the cache has
// T rows per sequence.
struct Shape {
  std::int64_t B, T, NH, HS;
  float sharpness = 1;  // standard deviation of the scores
  bool fp16 = true;
  std::int64_t C() const { return NH * HS; }
  // Sequences of a batch differ in length; cache rows from length(b) on are undefined.
  std::int64_t length(std::int64_t b) const { return std::max<std::int64_t>(1, T - 7 * b); }
  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < B; ++b) sum += length(b);
    return sum;
  }
  std::string text() const {
    return "B " + std::to_string(B) + " T " + std::to_string(T) + " " + by(NH, HS) +
           (sharpness > 1 ? " sharp" : "");
  }
};

// Derived as in harness/attention_case.h; out sees one rounding, its own.
template <class T>
double attention_tolerance(Shape s) {
  const double fp32 =
      static_cast<double>(s.sharpness) *
      (4 + std::sqrt(static_cast<double>(s.HS)) + std::sqrt(static_cast<double>(s.T))) *
      kRounding<float>;
  if (sizeof(T) == 4) return fp32;
  const double exponential = 0x1p-22;  // from the GPU's approximate exponential
  return 2 * 0.72 * kRounding<T> / std::sqrt(3.0) + fp32 + exponential;
}

// Attention of sequence b's newest token in head h (HS): the last row of the attention of all its
// tokens. Queries before the last do not matter.
template <class T>
oracle::Vec newest_row(Shape s, const DeviceArray<T>& qkv, const DeviceArray<T>& keys,
                       const DeviceArray<T>& values, std::int64_t b, std::int64_t h) {
  const std::int64_t C = s.C(), length = s.length(b);
  const oracle::PackedQkv at{length, 1, s.HS};
  oracle::Vec packed(length * 3 * s.HS);
  const oracle::Vec q = qkv.values(b * 3 * C + h * s.HS, s.HS);
  const oracle::Vec k = keys.values(b * s.T * C, length * C);
  const oracle::Vec v = values.values(b * s.T * C, length * C);
  std::copy(q.begin(), q.end(), packed.begin() + at.q(0, length - 1, 0));
  for (std::int64_t t = 0; t < length; ++t) {
    std::copy_n(k.begin() + t * C + h * s.HS, s.HS, packed.begin() + at.k(0, t, 0));
    std::copy_n(v.begin() + t * C + h * s.HS, s.HS, packed.begin() + at.v(0, t, 0));
  }
  const oracle::Vec p = oracle::attention_row(packed, at, 0, 0, length - 1, 0).probability;
  oracle::Vec out(s.HS);
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t d = 0; d < s.HS; ++d) out[d] += p[t] * packed[at.v(0, t, 0) + d];
  }
  return out;
}

// Overwrites the undefined rows of a cache (B, T, C) with NaN, which shows if one is used.
template <class T>
void undefine_rows(Shape s, const DeviceArray<T>& cache, llmc::Stream& stream) {
  const std::vector<T> nan(static_cast<std::size_t>(s.T * s.C()), llmc::from_float<T>(NAN));
  for (int i = 0; i < cache.sets(); ++i) {
    for (std::int64_t b = 0; b < s.B; ++b) {
      const std::int64_t defined = s.length(b) * s.C();
      llmc::copy_to_device(cache.at(i) + b * s.T * s.C() + defined, nan.data(),
                           s.T * s.C() - defined, stream);
    }
  }
  stream.synchronize();
}

template <class T>
void attention(OpRunner& runner, Shape s) {
  const std::int64_t C = s.C();
  const auto numbers = static_cast<double>(2 * (s.tokens() + s.B) * C);  // k, v; q, out
  OpCase c(runner, {.op = "cached_attention",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = sizeof(T) * numbers,
                    .flops = 4.0 * static_cast<double>(s.tokens() * C)});
  if (!c.is_selected()) return;
  std::vector<std::int32_t> newest;
  for (std::int64_t b = 0; b < s.B; ++b) {
    newest.push_back(static_cast<std::int32_t>(s.length(b) - 1));
  }
  const DeviceArray<std::int32_t> position(newest, runner.stream());
  auto& qkv = c.input<T>(s.B * 3 * C, normal(1, s.sharpness));
  auto& keys = c.input<T>(s.B * s.T * C, normal(2));
  auto& values = c.input<T>(s.B * s.T * C, normal(3));
  auto& out = c.output<T>(s.B * C);
  undefine_rows(s, keys, runner.stream());
  undefine_rows(s, values, runner.stream());
  c.variant("used", [&](int i) {
    llmc::cached_attention<T>(
        make_tensor(out.at(i), s.B, 1, C), make_tensor(qkv.at(i), s.B, 1, 3 * C),
        make_tensor(keys.at(i), s.B, s.T, C), make_tensor(values.at(i), s.B, s.T, C),
        Positions{position.data(), {s.B}}, s.NH, runner.stream());
  });
  const auto heads = sample(s.B * s.NH, 16);
  oracle::Vec expected;
  for (const std::int64_t head : heads) {
    const oracle::Vec row = newest_row(s, qkv, keys, values, head / s.NH, head % s.NH);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  c.finish([&] {
    return std::vector{compare("out", out.rows(heads, s.HS), expected, attention_tolerance<T>(s))};
  });
}

// Stores T_new tokens of each of B sequences in a cache of T_max rows per sequence.
struct StoreShape {
  std::int64_t B, T_new, T_max, C;
  bool fp16 = true;
  std::int64_t first(std::int64_t b) const { return 5 * b % (T_max - T_new + 1); }
  std::string text() const {
    return by(B, T_new) + "x" + std::to_string(C) + " of " + std::to_string(T_max);
  }
};

template <class T>
void store(OpRunner& runner, StoreShape s) {
  const std::int64_t n = s.B * s.T_max * s.C;
  OpCase c(runner, {.op = "store_keys_values",
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 4.0 * sizeof(T) * static_cast<double>(s.B * s.T_new * s.C)});
  if (!c.is_selected()) return;
  std::vector<std::int32_t> firsts;
  for (std::int64_t b = 0; b < s.B; ++b) firsts.push_back(static_cast<std::int32_t>(s.first(b)));
  const DeviceArray<std::int32_t> first(firsts, runner.stream());
  auto& qkv = c.input<T>(s.B * s.T_new * 3 * s.C, normal(1));
  auto& keys = c.output<T>(n, normal(2));
  auto& values = c.output<T>(n, normal(3));
  c.variant("used", [&](int i) {
    llmc::store_keys_values<T>(make_tensor(keys.at(i), s.B, s.T_max, s.C),
                               make_tensor(values.at(i), s.B, s.T_max, s.C),
                               make_tensor(qkv.at(i), s.B, s.T_new, 3 * s.C),
                               Positions{first.data(), {s.B}}, runner.stream());
  });
  // Samples rows that are written and rows that must stay unchanged.
  const auto rows = sample(s.B * s.T_max, 600);
  oracle::Vec want_k, want_v;
  for (const std::int64_t row : rows) {
    const std::int64_t b = row / s.T_max, t = row % s.T_max - s.first(b);
    const bool written = t >= 0 && t < s.T_new;
    const std::int64_t from = ((b * s.T_new + t) * 3 + 1) * s.C;
    const oracle::Vec k = written ? qkv.values(from, s.C) : keys.values(row * s.C, s.C);
    const oracle::Vec v = written ? qkv.values(from + s.C, s.C) : values.values(row * s.C, s.C);
    want_k.insert(want_k.end(), k.begin(), k.end());
    want_v.insert(want_v.end(), v.begin(), v.end());
  }
  c.finish([&] {
    return std::vector{compare("keys", keys.rows(rows, s.C), want_k, 0),
                       compare("values", values.rows(rows, s.C), want_v, 0)};
  });
}

inline void cases(OpRunner& runner) {
  // A tile has 32 keys; one round of all eight warps covers 256 keys.
  Shapes<Shape> shapes = {
      .tiny = {{1, 1, 1, 8}, {2, 33, 1, 24}, {1, 257, 1, 8}},
      .small = {{3, 33, 5, 24}, {2, 257, 3, 64}, {1, 300, 1, 128}, {2, 100, 2, 64, 4}},
      .gpt2 = {}};
  for (const std::int64_t HS : {8, 24, 64, 80, 128}) {
    for (const std::int64_t T : {1, 2, 63, 64, 65, 256, 257, 300}) {
      const std::int64_t number = std::ssize(shapes.small);
      shapes.small.push_back({1 + number % 3, T, 1 + number % 5, HS});
    }
  }
  // The longest row takes a block more than one pass.
  Shapes<StoreShape> stores = {.tiny = {{3, 2, 7, 8}, {3, 2, 7, 40}, {3, 2, 7, 2056}},
                               .small = {{2, 5, 5, 264}},
                               .gpt2 = {}};
  for (const std::int64_t NH : {12, 25}) {  // 124M, 1558M
    for (const std::int64_t T : {64, 256, 1024}) {
      for (const std::int64_t B : {1, 8, 32}) shapes.gpt2.push_back({B, T, NH, 64, 1, NH == 12});
    }
    // Shapes of one generation step and of one prompt. Only the cache rows that are written matter,
    // so the step has a short cache.
    stores.gpt2.push_back({8, 1, 64, NH * 64, NH == 12});
    stores.gpt2.push_back({8, 1024, 1024, NH * 64, NH == 12});
  }
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { attention<T>(runner, s); });
  }
  for (const StoreShape s : runner.select(stores)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { store<T>(runner, s); });
  }
}

}  // namespace llmc_dev::cached_attention
