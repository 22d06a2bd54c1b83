// Attention over a key-value cache in inference: of prompts, and of one new token per sequence. The
// cache has the dtype of the model, or is INT8.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "test/oracle/attention.h"
#include "test/oracle/ops.h"

namespace llmc_dev::cache_attention {

namespace oracle = llmc::oracle;

// B sequences with a cache of T rows each; a prompt reads the last `queries` tokens of each (all
// if there are fewer). 0 queries: decode attention of the newest token.
struct Shape {
  std::int64_t B, T, NH, HS, queries = 0;
  float sharpness = 1;  // standard deviation of the scores
  bool fp16 = true;
  std::int64_t C() const { return NH * HS; }
  // Sequences of a batch differ in length; cache rows from length(b) on are undefined.
  std::int64_t length(std::int64_t b) const { return std::max<std::int64_t>(1, T - 7 * b); }
  std::int64_t rows(std::int64_t b) const {
    return queries == 0 ? 1 : std::min(queries, length(b));
  }
  std::string text() const {
    return "B " + std::to_string(B) + " T " + std::to_string(T) + " " + by(NH, HS) +
           (queries > 0 ? " last " + std::to_string(queries) : "") +
           (sharpness > 1 ? " sharp" : "");
  }
};

// A token whose attention is computed: its sequence and its position.
struct Query {
  std::int64_t b, position;
};
inline std::vector<Query> queries_of(const Shape& s) {
  std::vector<Query> all;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t i = s.length(b) - s.rows(b); i < s.length(b); ++i) all.push_back({b, i});
  }
  return all;
}

inline std::vector<llmc::PromptTile> tiles_of(const Shape& s) {
  std::vector<llmc::PromptTile> tiles;
  std::int32_t row = 0;
  for (std::int64_t b = 0; b < s.B; ++b) {
    auto position = static_cast<std::int32_t>(s.length(b) - s.rows(b));
    auto left = static_cast<std::int32_t>(s.rows(b));
    while (left > 0) {
      const std::int32_t rows = std::min(left, llmc::kPromptTileRows);
      tiles.push_back({row, rows, static_cast<std::int32_t>(b), position});
      row += rows, position += rows, left -= rows;
    }
  }
  return tiles;
}

// Derived as in harness/attention_case.h. On tensor cores, prompts round the probabilities too, and
// the values of an INT8 cache.
template <class T, class KV>
double attention_tolerance(Shape s) {
  const double fp32 =
      static_cast<double>(s.sharpness) *
      (4 + std::sqrt(static_cast<double>(s.HS)) + std::sqrt(static_cast<double>(s.T))) *
      kRounding<float>;
  if (sizeof(T) == 4) return fp32;
  const double exponential = 0x1p-22;  // from the GPU's approximate exponential
  const double inputs = s.queries > 0 ? (llmc::kIsQuantized<KV> ? 1 : 0.5) * kRounding<T> : 0;
  return 2 * (0.72 * kRounding<T> / std::sqrt(3.0) + inputs) + fp32 + exponential;
}

// Overwrites the undefined rows of a cache (B, T, width) with NaN, which shows if one is used.
template <class T>
void undefine_rows(Shape s, const DeviceArray<T>& cache, std::int64_t width, llmc::Stream& stream) {
  const std::vector<T> nan(static_cast<std::size_t>(s.T * width), llmc::from_float<T>(NAN));
  for (int i = 0; i < cache.sets(); ++i) {
    for (std::int64_t b = 0; b < s.B; ++b) {
      const std::int64_t defined = s.length(b) * width;
      llmc::copy_to_device(cache.at(i) + b * s.T * width + defined, nan.data(),
                           s.T * width - defined, stream);
    }
  }
  stream.synchronize();
}

// Keys or values (B, T, C) of a case, and the scales (B, T, NH) of an INT8 cache.
template <class KV>
class CacheArrays {
 public:
  CacheArrays(OpCase& c, const Shape& s, std::uint32_t seed, llmc::Stream& stream) : s_(s) {
    constexpr bool kCodes = llmc::kIsQuantized<KV>;
    numbers_ = &c.input<KV>(s.B * s.T * s.C(), kCodes ? indices(seed, 256) : normal(seed));
    if constexpr (kCodes) {
      constexpr float kScale = 0.0136f;  // numbers of about 1
      scales_ = &c.input<float>(s.B * s.T * s.NH, positive(seed + 10, kScale));
      undefine_rows(s, *scales_, s.NH, stream);
    } else {
      undefine_rows(s, *numbers_, s.C(), stream);
    }
  }
  llmc::CacheRows<const KV> at(int set) const {
    const KV* const numbers = numbers_->at(set);
    const float* const scales = scales_ != nullptr ? scales_->at(set) : nullptr;
    return {make_tensor(numbers, s_.B, s_.T, s_.C()), make_tensor(scales, s_.B, s_.T, s_.NH)};
  }
  // The numbers of all tokens and heads. One copy from the device: thousands of short ones take
  // minutes.
  oracle::Vec values() const {
    oracle::Vec all = numbers_->values();
    if (scales_ == nullptr) return all;
    const oracle::Vec scales = scales_->values();
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] *= scales[i / static_cast<std::size_t>(s_.HS)];
    return all;
  }

 private:
  Shape s_;
  DeviceArray<KV>* numbers_;
  DeviceArray<float>* scales_ = nullptr;
};

// The attention of one query in head h (HS): `q` (HS) over all keys and values (B, T, NH, HS).
inline oracle::Vec attention_row(const Shape& s, const oracle::Vec& q, const oracle::Vec& keys,
                                 const oracle::Vec& values, Query query, std::int64_t h) {
  const std::int64_t count = query.position + 1;
  const oracle::PackedQkv at{count, 1, s.HS};
  oracle::Vec packed(count * 3 * s.HS);
  std::copy(q.begin(), q.end(), packed.begin() + at.q(0, count - 1, 0));
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t place = ((query.b * s.T + t) * s.NH + h) * s.HS;
    std::copy_n(keys.begin() + place, s.HS, packed.begin() + at.k(0, t, 0));
    std::copy_n(values.begin() + place, s.HS, packed.begin() + at.v(0, t, 0));
  }
  const oracle::Vec p = oracle::attention_row(packed, at, 0, 0, count - 1, 0).probability;
  oracle::Vec out(s.HS);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t d = 0; d < s.HS; ++d) out[d] += p[t] * packed[at.v(0, t, 0) + d];
  }
  return out;
}

// Launches the op of a shape on one set of arrays. Holds what the op needs in addition.
template <class T>
class Launcher {
 public:
  Launcher(const Shape& s, llmc::Stream& stream)
      : s_(s),
        stream_(stream),
        tiles_(s.queries > 0 ? std::ssize(tiles_of(s)) : 1),
        position_(s.B),
        scratch_(llmc::decode_attention_scratch(s.B, s.T, s.NH, s.HS)),
        counters_(llmc::decode_attention_counters(s.B, s.NH)) {
    const auto tiles = tiles_of(s);
    std::vector<std::int32_t> newest;
    for (std::int64_t b = 0; b < s.B; ++b) {
      newest.push_back(static_cast<std::int32_t>(s.length(b) - 1));
    }
    if (s.queries > 0) llmc::copy_to_device(tiles_.data(), tiles.data(), std::ssize(tiles), stream);
    llmc::copy_to_device(position_.data(), newest.data(), s.B, stream);
    llmc::fill_zero(counters_.data(), s.B * s.NH, stream);
    stream.synchronize();
  }

  template <class KV>
  void run(T* out, const T* q, const llmc::CacheRows<const KV>& keys,
           const llmc::CacheRows<const KV>& values, std::int64_t rows) {
    const std::int64_t C = s_.C();
    const auto y = make_tensor(out, rows, C);
    const auto x = make_tensor(q, rows, C);
    if (s_.queries > 0) {
      llmc::prompt_attention<T, KV>(y, x, keys, values,
                                    {tiles_.data(), {static_cast<std::int64_t>(tiles_.size())}},
                                    s_.NH, stream_);
    } else {
      llmc::decode_attention<T, KV>(
          y, x, keys, values, {position_.data(), {s_.B}},
          make_tensor(scratch_.data(), static_cast<std::int64_t>(scratch_.size())),
          make_tensor(counters_.data(), s_.B * s_.NH), s_.NH, stream_);
    }
  }

 private:
  Shape s_;
  llmc::Stream& stream_;
  Buffer<llmc::PromptTile> tiles_;
  Buffer<std::int32_t> position_;
  Buffer<float> scratch_;
  Buffer<std::int32_t> counters_;
};

template <class T, class KV>
void attention(OpRunner& runner, Shape s) {
  const std::int64_t C = s.C();
  const std::vector<Query> queries = queries_of(s);
  const std::int64_t rows = std::ssize(queries);
  double tokens = 0, pairs = 0;
  for (std::int64_t b = 0; b < s.B; ++b) tokens += static_cast<double>(s.length(b));
  for (const Query& query : queries) pairs += static_cast<double>(query.position + 1);
  constexpr bool kCodes = llmc::kIsQuantized<KV>;
  const std::string name = s.queries > 0 ? "prompt_attention" : "decode_attention";
  const double token_bytes = sizeof(KV) * static_cast<double>(C) +
                             (kCodes ? sizeof(float) * static_cast<double>(s.NH) : 0);
  OpCase c(runner, {.op = name + (kCodes ? "_int8" : ""),
                    .shape = s.text(),
                    .dtype = kDtypeOf<T>,
                    .bytes = 2 * tokens * token_bytes +                        // k, v
                             sizeof(T) * 2.0 * static_cast<double>(rows * C),  // q, out
                    .flops = 4.0 * pairs * static_cast<double>(C)});
  if (!c.is_selected()) return;
  auto& q = c.input<T>(rows * C, normal(1, s.sharpness));
  const CacheArrays<KV> keys(c, s, 2, runner.stream()), values(c, s, 3, runner.stream());
  auto& out = c.output<T>(rows * C);
  Launcher<T> launcher(s, runner.stream());
  c.variant("used", [&](int i) {
    launcher.template run<KV>(out.at(i), q.at(i), keys.at(i), values.at(i), rows);
  });
  const auto heads = sample(rows * s.NH, 16);
  const oracle::Vec all_keys = keys.values(), all_values = values.values();
  oracle::Vec expected;
  for (const std::int64_t head : heads) {
    const oracle::Vec row = attention_row(s, q.values(head * s.HS, s.HS), all_keys, all_values,
                                          queries[head / s.NH], head % s.NH);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  c.finish([&] {
    return std::vector{
        compare("out", out.rows(heads, s.HS), expected, attention_tolerance<T, KV>(s))};
  });
}

inline void cases(OpRunner& runner) {
  Shapes<Shape> shapes = {
      .tiny = {{1, 1, 1, 8}, {2, 33, 1, 24}, {1, 257, 1, 8}, {2, 70, 1, 24, 70}, {1, 1, 1, 8, 1}},
      .small = {{3, 33, 5, 24}, {2, 257, 3, 64}, {2, 100, 2, 64, 0, 4}, {2, 100, 2, 64, 70, 4}},
      .gpt2 = {}};
  for (const std::int64_t HS : {8, 24, 64, 80, 128}) {
    for (const std::int64_t T : {1, 64, 65, 256, 300, 600}) {
      const std::int64_t number = std::ssize(shapes.small);
      shapes.small.push_back({1 + number % 3, T, 1 + number % 4, HS});
      if (T <= 300) shapes.small.push_back({1 + number % 2, T, 1 + number % 3, HS, 66});
    }
  }
  for (const std::int64_t NH : {12, 25}) {  // 124M, 1558M
    for (const std::int64_t T : {64, 256, 1024}) {
      for (const std::int64_t B : {1, 8, 32}) {
        shapes.gpt2.push_back({B, T, NH, 64, 0, 1, NH == 12});
      }
      shapes.gpt2.push_back({4, T, NH, 64, 256, 1, NH == 12});
    }
  }
  for (const Shape s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() {
      attention<T, T>(runner, s);
      attention<T, std::int8_t>(runner, s);
    });
  }
}

}  // namespace llmc_dev::cache_attention
