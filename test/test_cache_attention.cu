// Attention over a key-value cache: prompt_attention and decode_attention match the definition,
// read and write only what they may, and the bits of a row depend only on its own sequence.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
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

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// One sequence: queries, keys and values (length, C).
template <class T, class KV>
struct Sequence {
  std::int64_t NH, HS, length;
  std::vector<T> q;
  std::vector<KV> k, v;
  std::int64_t C() const { return NH * HS; }

  Sequence(std::int64_t NH, std::int64_t HS, std::int64_t length)
      : NH(NH),
        HS(HS),
        length(length),
        q(convert<T>(random_floats(length * C(), 3 * length))),
        k(convert<KV>(random_floats(length * C(), 3 * length + 1))),
        v(convert<KV>(random_floats(length * C(), 3 * length + 2))) {}

  std::vector<T> query(std::int64_t position) const {
    return {q.begin() + position * C(), q.begin() + (position + 1) * C()};
  }
  // The definition's result for the tokens from `first` on.
  oracle::Vec expected(std::int64_t first) const {
    const oracle::PackedQkv at{length, NH, HS};
    oracle::Vec qkv(length * 3 * C());
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t c = 0; c < C(); ++c) {
        qkv[at.q(0, t, 0) + c] = oracle::as_double(q[t * C() + c]);
        qkv[at.k(0, t, 0) + c] = oracle::as_double(k[t * C() + c]);
        qkv[at.v(0, t, 0) + c] = oracle::as_double(v[t * C() + c]);
      }
    }
    const oracle::Vec out = oracle::attention_forward(qkv, 1, length, NH, HS, {}, {}, first).out;
    return {out.begin() + first * C(), out.end()};
  }
};

// Keys and values (sequences, T_max, C) of a cache, NaN in rows that hold no token.
template <class T, class KV>
struct Cache {
  std::int64_t slots, T_max, C;
  DeviceArray<KV> keys, values;

  Cache(const std::vector<Sequence<T, KV>>& sequences, std::int64_t T_max, Stream& stream)
      : slots(std::ssize(sequences)),
        T_max(T_max),
        C(sequences[0].C()),
        keys(rows(sequences, T_max, &Sequence<T, KV>::k), stream),
        values(rows(sequences, T_max, &Sequence<T, KV>::v), stream) {}

  static std::vector<KV> rows(const std::vector<Sequence<T, KV>>& sequences, std::int64_t T_max,
                              std::vector<KV> Sequence<T, KV>::*part) {
    std::vector<KV> all;
    for (const auto& s : sequences) {
      append(all, s.*part);
      append(all, std::vector<KV>(static_cast<std::size_t>((T_max - s.length) * s.C()),
                                  from_float<KV>(NAN)));
    }
    return all;
  }
  Tensor<const KV, 3> view(const DeviceArray<KV>& array) const {
    return {array.data(), {slots, T_max, C}};
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
                          cache.view(cache.keys), cache.view(cache.values),
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
                            cache.view(cache.keys), cache.view(cache.values),
                            {position.data(), {B}}, make_tensor(scratch.data(), scratch.size()),
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
template <class T>
double limit(std::int64_t HS, std::int64_t length) {
  const double fp32 =
      (4 + std::sqrt(static_cast<double>(HS)) + std::sqrt(static_cast<double>(length))) *
      kRounding<float>;
  if (sizeof(T) == 4) return fp32;
  // Tensor cores take probabilities that are rounded to T.
  return 2 * (0.72 / std::sqrt(3.0) + 0.5) * kRounding<T> + fp32 + 0x1p-22;
}

template <class T, class KV>
std::vector<Sequence<T, KV>> sequences_of(std::int64_t NH, std::int64_t HS,
                                          const Lengths& lengths) {
  std::vector<Sequence<T, KV>> all;
  for (const std::int64_t length : lengths) all.emplace_back(NH, HS, length);
  return all;
}

Lengths test_lengths() {
  return tiny_shapes() ? Lengths{1, 65, 258} : Lengths{1, 31, 64, 65, 255, 256, 257, 511, 600};
}
Lengths head_sizes() {
  return tiny_shapes() ? Lengths{8, 80} : Lengths{8, 24, 64, 80, 128};
}

TEST_SUITE("cache_attention") {
  TEST_CASE_TEMPLATE("attention over a cache matches the definition", D, Fp32, Bf16, Fp16,
                     Bf16Cache, Fp16Cache) {
    using T = typename D::T;
    using KV = typename D::KV;
    Stream stream;
    for (const std::int64_t HS : head_sizes()) {
      const Lengths lengths = test_lengths();
      const auto sequences = sequences_of<T, KV>(HS < 64 ? 3 : 1, HS, lengths);
      const std::int64_t T_max = lengths.back() + 3, C = sequences[0].C();
      Prompt prompt;
      for (int s = 0; s < std::ssize(sequences); ++s) {
        // Long prompts are cut, and only their last tiles are computed.
        const int length = static_cast<int>(lengths[s]);
        prompt.add(s, std::max(0, length - 130), length, kPromptTileRows);
      }
      prompt.tiles.push_back({0, 0, 0, 0});  // an empty tile
      const std::vector<T> out = run_prompt(sequences, prompt, T_max, stream);
      const std::vector<T> newest = run_decode(sequences, T_max, stream);
      for (std::int64_t s = 0; s < std::ssize(sequences); ++s) {
        CAPTURE(HS);
        CAPTURE(lengths[s]);
        const std::int64_t first = std::max<std::int64_t>(0, lengths[s] - 130);
        const oracle::Vec expected = sequences[s].expected(first);
        const double allowed = limit<T>(HS, lengths[s]);
        CHECK(relative_l2(rows_of(out, prompt, static_cast<int>(s)), expected) <= allowed);
        const oracle::Vec last(expected.end() - C, expected.end());
        const std::vector<T> row(newest.begin() + s * C, newest.begin() + (s + 1) * C);
        CHECK(relative_l2(row, last) <= allowed);
      }
      // Rows that no tile names keep their zeros.
      const std::vector<T> others = rows_of(out, prompt, -1);
      CHECK(same_bits(others, std::vector<T>(others.size(), T{})));
    }
  }

  TEST_CASE_TEMPLATE("where a prompt is cut does not change the bits of its rows", D, Fp32, Bf16,
                     Fp16, Bf16Cache, Fp16Cache) {
    using T = typename D::T;
    using KV = typename D::KV;
    Stream stream;
    const int length = tiny_shapes() ? 70 : 199;
    const std::int64_t HS = tiny_shapes() ? 8 : 64, T_max = length + 40;
    const auto alone = sequences_of<T, KV>(2, HS, {length});
    Prompt whole;
    whole.add(0, 0, length, kPromptTileRows);
    const std::vector<T> expected = rows_of(run_prompt(alone, whole, T_max, stream), whole, 0);
    const auto batch = sequences_of<T, KV>(2, HS, {33, length + 30, length, 5});
    for (const int chunk : {1, 7, 33, kPromptTileRows}) {
      CAPTURE(chunk);
      Prompt cut;
      cut.add(1, length - 10, length + 30, 64);
      cut.add(2, 0, length, chunk);
      cut.add(0, 0, 33, chunk);
      const std::vector<T> out = run_prompt(batch, cut, T_max + 9, stream);
      CHECK(same_bits(rows_of(out, cut, 2), expected));
    }
    // The tokens that follow are not in the cache yet.
    for (const int end : {1, 50, 65}) {
      CAPTURE(end);
      auto begun = alone;
      begun[0].length = end;
      begun[0].k.resize(end * begun[0].C());
      begun[0].v.resize(end * begun[0].C());
      Prompt part;
      part.add(0, 0, end, kPromptTileRows);
      const std::vector<T> out = rows_of(run_prompt(begun, part, T_max, stream), part, 0);
      CHECK(same_bits(out, std::vector<T>(expected.begin(), expected.begin() + std::ssize(out))));
    }
  }

  TEST_CASE_TEMPLATE("an infinite or NaN value reaches only the rows of its token and later ones",
                     D, Fp32, Bf16, Fp16, Bf16Cache, Fp16Cache) {
    using T = typename D::T;
    using KV = typename D::KV;
    Stream stream;
    const std::int64_t length = 130;
    const Lengths tokens = tiny_shapes() ? Lengths{20, 129} : Lengths{0, 1, 20, 63, 64, 100, 129};
    for (const std::int64_t HS : tiny_shapes() ? Lengths{8} : Lengths{8, 64}) {
      const auto clean = sequences_of<T, KV>(2, HS, {length});
      const std::int64_t C = clean[0].C();
      for (const int chunk : {33, kPromptTileRows}) {
        Prompt prompt;
        prompt.add(0, 0, length, chunk);
        const auto expected = rows_of(run_prompt(clean, prompt, length, stream), prompt, 0);
        for (const std::int64_t token : tokens) {
          for (const float value : {NAN, INFINITY, -INFINITY}) {
            auto damaged = clean;
            const std::int64_t column = HS + token % HS;  // of the second head
            damaged[0].v[token * C + column] = from_float<KV>(value);
            auto out = rows_of(run_prompt(damaged, prompt, length, stream), prompt, 0);
            int finite = 0;
            for (std::int64_t i = token * C + column; i < length * C; i += C) {
              finite += std::isfinite(to_float(out[i])) ? 1 : 0;
              out[i] = expected[i];
            }
            CHECK(finite == 0);
            CHECK(same_bits(out, expected));
          }
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("the batch and the size of the cache do not change the bits of decoding", D,
                     Fp32, Bf16, Fp16, Bf16Cache, Fp16Cache) {
    using T = typename D::T;
    using KV = typename D::KV;
    Stream stream;
    const std::int64_t HS = tiny_shapes() ? 8 : 64, NH = 2, C = NH * HS;
    const Lengths pool = {3, 300, 17, 256, 600, 1, 90, 257};
    for (const std::int64_t length : {40, 256, 530}) {
      const std::vector<T> expected =
          run_decode(sequences_of<T, KV>(NH, HS, {length}), length, stream);
      const std::vector<std::int64_t> sizes =
          tiny_shapes() ? Lengths{3} : Lengths{2, 3, 4, 5, 6, 7, 8, 9};
      for (const std::int64_t B : sizes) {
        const std::int64_t place = (length + B) % B;
        Lengths lengths(pool.begin(), pool.begin() + B - 1);
        lengths.insert(lengths.begin() + place, length);
        const std::vector<T> out =
            run_decode(sequences_of<T, KV>(NH, HS, lengths), 600 + 100 * B, stream);
        CAPTURE(B);
        CAPTURE(length);
        CHECK(same_bits({out.begin() + place * C, out.begin() + (place + 1) * C}, expected));
      }
    }
  }

  TEST_CASE_TEMPLATE("a read of an unwritten row of the cache gives NaN", D, Fp32, Bf16, Fp16,
                     Bf16Cache, Fp16Cache) {
    using T = typename D::T;
    using KV = typename D::KV;
    Stream stream;
    const std::vector<T> out =
        run_decode(sequences_of<T, KV>(1, 8, {20, 256, 290}), 300, stream, 1);
    CHECK(std::ranges::all_of(out, [](const T& x) { return std::isnan(to_float(x)); }));
    auto longer = sequences_of<T, KV>(1, 8, {20});
    append(longer[0].q, longer[0].q);
    Prompt prompt;
    prompt.add(0, 20, 22, 2);
    const std::vector<T> rows = rows_of(run_prompt(longer, prompt, 30, stream), prompt, 0);
    CHECK(std::ranges::all_of(rows, [](const T& x) { return std::isnan(to_float(x)); }));
  }

  TEST_CASE("a sequence with a negative position is skipped") {
    Stream stream;
    const auto out = run_decode(sequences_of<float, float>(1, 8, {1, 1}), 300, stream, -1);
    CHECK(std::ranges::all_of(out, [](float x) { return std::isnan(x); }));
  }

  TEST_CASE("attention over a cache rejects shapes that it does not support") {
    Stream stream;
    const Buffer<float> memory(1 << 12);
    const Buffer<std::int32_t> ints(64);
    const Buffer<PromptTile> tiles(1);
    const auto attend = [&](std::int64_t C, std::int64_t NH, std::int64_t q_rows,
                            std::int64_t key_width, std::int64_t floats, std::int64_t counters) {
      const auto out = make_tensor(memory.data(), 2, C), q = make_tensor(memory.data(), q_rows, C);
      const auto keys = make_tensor(memory.data(), 2, 4, key_width);
      const auto values = make_tensor(memory.data(), 2, 4, C);
      if (floats < 0) {
        prompt_attention<float, float>(out, q, keys, values, {tiles.data(), {1}}, NH, stream);
      } else {
        decode_attention<float, float>(out, q, keys, values, {ints.data(), {2}},
                                       make_tensor(memory.data(), floats),
                                       make_tensor(ints.data(), counters), NH, stream);
      }
    };
    const std::int64_t enough = decode_attention_scratch(2, 4, 2, 8);
    for (const std::int64_t floats : {std::int64_t{-1}, enough}) {
      const auto message = [&](std::int64_t C, std::int64_t q_rows, std::int64_t key_width) {
        return complaint([&] { attend(C, 2, q_rows, key_width, floats, 4); });
      };
      CHECK(contains(message(24, 2, 24), "multiple of 8, from 8 to 128"));
      CHECK(contains(message(16, 3, 16), "'q'"));
      CHECK(contains(message(16, 2, 8), "'keys'"));
    }
    CHECK(contains(complaint([&] { attend(16, 2, 2, 16, enough - 1, 4); }), "scratch"));
    CHECK(contains(complaint([&] { attend(16, 2, 2, 16, enough, 3); }), "'counters'"));
  }
}

}  // namespace
