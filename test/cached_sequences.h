// Sequences with keys and values in a cache, for tests of attention over a key-value cache: their
// results by the definition, and launches of the two operations.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "llmc/ops/cache_rows.h"
#include "llmc/ops/quantize.h"
#include "test/oracle/attention.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace llmc_test::cached {

using namespace llmc;
using llmc_dev::DeviceArray;
using Lengths = std::vector<std::int64_t>;

template <class T_, class KV_>
struct Dtypes {
  using T = T_;
  using KV = KV_;
};
using Fp32 = Dtypes<float, float>;
using Bf16 = Dtypes<bf16, bf16>;
using Fp16 = Dtypes<fp16, fp16>;
using Bf16Cache = Dtypes<float, bf16>;
using Fp16Cache = Dtypes<float, fp16>;
using Int8Fp32 = Dtypes<float, std::int8_t>;
using Int8Bf16 = Dtypes<bf16, std::int8_t>;
using Int8Fp16 = Dtypes<fp16, std::int8_t>;

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Keys or values (length, C) as a cache stores them, and the scales (length, NH) of codes.
template <class KV>
struct Stored {
  std::vector<KV> numbers;
  std::vector<float> scales;

  Stored(const std::vector<float>& x, std::int64_t HS) {
    if constexpr (!kIsQuantized<KV>) {
      numbers = convert<KV>(x);
    } else {
      for (auto head = x.begin(); head != x.end(); head += HS) {
        const auto [min, max] = std::minmax_element(head, head + HS);
        const Quantization q = symmetric_quantization({*min, *max});
        for (auto i = head; i != head + HS; ++i) numbers.push_back(CodeRounding(q).code(*i));
        scales.push_back(q.scale);
      }
    }
  }
  double value(std::int64_t i, std::int64_t HS) const {
    const double x = to_float(numbers[i]);
    return kIsQuantized<KV> ? x * static_cast<double>(scales[i / HS]) : x;
  }
};

// A number of which a cache has a row that holds no token: NaN, or any code with the scale NaN.
template <class KV>
KV undefined_number() {
  if constexpr (kIsQuantized<KV>) {
    return 77;
  } else {
    return from_float<KV>(NAN);
  }
}

// One sequence: queries, keys and values (length, C).
template <class T, class KV>
struct Sequence {
  std::int64_t NH, HS, length;
  std::vector<T> q;
  Stored<KV> k, v;
  std::int64_t C() const { return NH * HS; }

  Sequence(std::int64_t NH, std::int64_t HS, std::int64_t length)
      : NH(NH),
        HS(HS),
        length(length),
        q(convert<T>(random_floats(length * C(), 3 * length))),
        k(random_floats(length * C(), 3 * length + 1), HS),
        v(random_floats(length * C(), 3 * length + 2), HS) {}

  std::vector<T> query(std::int64_t position) const {
    return {q.begin() + position * C(), q.begin() + (position + 1) * C()};
  }
  // Keeps the keys and values of the first tokens.
  void shorten(std::int64_t tokens) {
    length = tokens;
    for (Stored<KV>* const part : {&k, &v}) {
      part->numbers.resize(tokens * C());
      if (kIsQuantized<KV>) part->scales.resize(tokens * NH);
    }
  }
  // Sets a value, or the scale of its head. Returns the columns that change: first and end.
  std::pair<std::int64_t, std::int64_t> set_value(std::int64_t token, std::int64_t column,
                                                  float value) {
    if constexpr (kIsQuantized<KV>) {
      v.scales[token * NH + column / HS] = value;
      return {column / HS * HS, (column / HS + 1) * HS};
    } else {
      v.numbers[token * C() + column] = from_float<KV>(value);
      return {column, column + 1};
    }
  }
  // The definition's result for the tokens from `first` on.
  oracle::Vec expected(std::int64_t first) const {
    const oracle::PackedQkv at{length, NH, HS};
    oracle::Vec qkv(length * 3 * C());
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t c = 0; c < C(); ++c) {
        qkv[at.q(0, t, 0) + c] = oracle::as_double(q[t * C() + c]);
        qkv[at.k(0, t, 0) + c] = k.value(t * C() + c, HS);
        qkv[at.v(0, t, 0) + c] = v.value(t * C() + c, HS);
      }
    }
    const oracle::Vec out = oracle::attention_forward(qkv, 1, length, NH, HS, {}, {}, first).out;
    return {out.begin() + first * C(), out.end()};
  }
};

// Keys and values (sequences, T_max, C) of a cache, NaN in rows that hold no token.
template <class T, class KV>
struct Cache {
  std::int64_t slots, T_max, C, NH;
  DeviceArray<KV> keys, values;
  DeviceArray<float> key_scales, value_scales;

  Cache(const std::vector<Sequence<T, KV>>& sequences, std::int64_t T_max, Stream& stream)
      : slots(std::ssize(sequences)),
        T_max(T_max),
        C(sequences[0].C()),
        NH(sequences[0].NH),
        keys(rows(sequences, T_max, &Sequence<T, KV>::k), stream),
        values(rows(sequences, T_max, &Sequence<T, KV>::v), stream),
        key_scales(scales(sequences, T_max, &Sequence<T, KV>::k), stream),
        value_scales(scales(sequences, T_max, &Sequence<T, KV>::v), stream) {}

  static std::vector<KV> rows(const std::vector<Sequence<T, KV>>& sequences, std::int64_t T_max,
                              Stored<KV> Sequence<T, KV>::*part) {
    std::vector<KV> all;
    for (const auto& s : sequences) {
      append(all, (s.*part).numbers);
      append(all, std::vector<KV>(static_cast<std::size_t>((T_max - s.length) * s.C()),
                                  undefined_number<KV>()));
    }
    return all;
  }
  static std::vector<float> scales(const std::vector<Sequence<T, KV>>& sequences,
                                   std::int64_t T_max, Stored<KV> Sequence<T, KV>::*part) {
    std::vector<float> all;
    for (const auto& s : sequences) {
      append(all, (s.*part).scales);
      append(all, std::vector<float>(static_cast<std::size_t>((T_max - s.length) * s.NH), NAN));
    }
    return all;
  }
  CacheRows<const KV> key_rows() const { return view(keys, key_scales); }
  CacheRows<const KV> value_rows() const { return view(values, value_scales); }

 private:
  CacheRows<const KV> view(const DeviceArray<KV>& numbers, const DeviceArray<float>& scales) const {
    return {{numbers.data(), {slots, T_max, C}}, {scales.data(), {slots, T_max, NH}}};
  }
};

// Tiles, and the token of each row of q.
struct Prompt {
  std::vector<PromptTile> tiles;
  std::vector<std::int32_t> slot, position;  // -1: a row that no tile names

  // Tokens first .. last - 1 of a sequence, in tiles of at most `chunk` rows. A row that no tile
  // names follows each tile.
  void add(int slot_, int first, int last, int chunk) {
    for (; first < last; first += chunk) {
      const int rows = std::min(chunk, last - first);
      tiles.push_back({static_cast<std::int32_t>(slot.size()), rows, slot_, first});
      for (int r = 0; r <= rows; ++r) {
        slot.push_back(r < rows ? slot_ : -1);
        position.push_back(r < rows ? first + r : -1);
      }
    }
  }
};

template <class T, class KV>
std::vector<T> run_prompt(const std::vector<Sequence<T, KV>>& sequences, const Prompt& prompt,
                          std::int64_t T_max, Stream& stream) {
  const Cache<T, KV> cache(sequences, T_max, stream);
  const std::int64_t R = std::ssize(prompt.slot), C = cache.C;
  const std::vector<T> nan(static_cast<std::size_t>(C), from_float<T>(NAN));
  std::vector<T> queries;
  for (std::int64_t r = 0; r < R; ++r) {
    append(queries, prompt.slot[r] < 0 ? nan : sequences[prompt.slot[r]].query(prompt.position[r]));
  }
  const DeviceArray<T> q(queries, stream), out(std::vector<T>(queries.size(), T{}), stream);
  const Buffer<PromptTile> tiles = upload(prompt.tiles, stream);
  prompt_attention<T, KV>(make_tensor(out.data(), R, C), make_tensor(q.data(), R, C),
                          cache.key_rows(), cache.value_rows(),
                          {tiles.data(), {std::ssize(prompt.tiles)}}, sequences[0].NH, stream);
  stream.synchronize();
  CHECK(out.guards_intact());
  return out.stored();
}

// The rows of one sequence, in the order of their positions.
template <class T>
std::vector<T> rows_of(const std::vector<T>& out, const Prompt& prompt, int slot) {
  const std::size_t C = out.size() / prompt.slot.size();
  std::vector<T> rows;
  for (std::size_t r = 0; r < prompt.slot.size(); ++r) {
    if (prompt.slot[r] != slot) continue;
    rows.insert(rows.end(), out.begin() + r * C, out.begin() + (r + 1) * C);
  }
  return rows;
}

// Attention of the newest token of each sequence. Runs twice: the counters must be left at 0.
template <class T, class KV>
std::vector<T> run_decode(const std::vector<Sequence<T, KV>>& sequences, std::int64_t T_max,
                          Stream& stream, std::int64_t beyond = 0) {
  const Cache<T, KV> cache(sequences, T_max, stream);
  const std::int64_t B = cache.slots, C = cache.C, NH = sequences[0].NH, HS = sequences[0].HS;
  std::vector<T> queries;
  std::vector<std::int32_t> newest;
  for (const auto& s : sequences) {
    append(queries, s.query(s.length - 1));
    newest.push_back(static_cast<std::int32_t>(s.length - 1 + beyond));
  }
  const DeviceArray<T> q(queries, stream);
  const DeviceArray<std::int32_t> position(newest, stream);
  const DeviceArray<float> scratch(
      std::vector<float>(decode_attention_scratch(B, T_max, NH, HS), NAN), stream);
  const DeviceArray<std::int32_t> counters(
      std::vector<std::int32_t>(decode_attention_counters(B, NH)), stream);
  std::vector<T> first;
  for (int run = 0; run < 2; ++run) {
    const DeviceArray<T> out(std::vector<T>(queries.size(), from_float<T>(NAN)), stream);
    decode_attention<T, KV>(make_tensor(out.data(), B, C), make_tensor(q.data(), B, C),
                            cache.key_rows(), cache.value_rows(), {position.data(), {B}},
                            make_tensor(scratch.data(), scratch.size()),
                            make_tensor(counters.data(), counters.size()), NH, stream);
    stream.synchronize();
    CHECK(out.guards_intact());
    CHECK(scratch.guards_intact());
    CHECK(counters.stored() == std::vector<std::int32_t>(counters.size()));
    if (run == 0) first = out.stored();
    if (run == 1 && beyond == 0) CHECK(same_bits(out.stored(), first));
  }
  return first;
}

// Derived as in dev/ops/cache_attention.h.
template <class T, class KV>
double limit(std::int64_t HS, std::int64_t length) {
  const double fp32 =
      (4 + std::sqrt(static_cast<double>(HS)) + std::sqrt(static_cast<double>(length))) *
      kRounding<float>;
  if (sizeof(T) == 4) return fp32;
  // Tensor cores take probabilities that are rounded to T, and so are values of an INT8 cache.
  const double inputs = kIsQuantized<KV> ? 1 : 0.5;
  return 2 * (0.72 / std::sqrt(3.0) + inputs) * kRounding<T> + fp32 + 0x1p-22;
}

template <class T, class KV>
std::vector<Sequence<T, KV>> sequences_of(std::int64_t NH, std::int64_t HS,
                                          const Lengths& lengths) {
  std::vector<Sequence<T, KV>> all;
  for (const std::int64_t length : lengths) all.emplace_back(NH, HS, length);
  return all;
}

}  // namespace llmc_test::cached
