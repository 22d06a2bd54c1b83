// Attention over a key-value cache: prompt_attention and decode_attention match the definition,
// read and write only what they may, and the bits of a row depend only on its own sequence.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "test/cached_sequences.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using namespace llmc_test::cached;

Lengths test_lengths() {
  return tiny_shapes() ? Lengths{1, 65, 258} : Lengths{1, 31, 64, 65, 255, 256, 257, 511, 600};
}
Lengths head_sizes() {
  return tiny_shapes() ? Lengths{8, 80} : Lengths{8, 24, 64, 80, 128};
}

TEST_SUITE("cache_attention") {
  TEST_CASE_TEMPLATE("attention over a cache matches the definition", D, Fp32, Bf16, Fp16,
                     Bf16Cache, Fp16Cache, Int8Fp32, Int8Bf16, Int8Fp16) {
    using T = typename D::T;
    if (checked_as_bf16<T>()) return;
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
        const double allowed = limit<T, KV>(HS, lengths[s]);
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
                     Fp16, Bf16Cache, Fp16Cache, Int8Fp32, Int8Bf16, Int8Fp16) {
    using T = typename D::T;
    if (checked_as_bf16<T>()) return;
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
      if (tiny_shapes() && chunk != 7) continue;
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
      begun[0].shorten(end);
      Prompt part;
      part.add(0, 0, end, kPromptTileRows);
      const std::vector<T> out = rows_of(run_prompt(begun, part, T_max, stream), part, 0);
      CHECK(same_bits(out, std::vector<T>(expected.begin(), expected.begin() + std::ssize(out))));
    }
  }

  TEST_CASE("where a prompt is cut does not change the sign of a zero") {
    Stream stream;
    auto sequences = sequences_of<float, float>(1, 8, {64});
    // The weight of token 0 is 1, and those of the others round the smallest number to -0.
    for (int i = 0; i < 64 * 8; ++i) {
      sequences[0].q[i] = 1;
      sequences[0].k.numbers[i] = i < 8 ? 2.0f : 0.0f;
      sequences[0].v.numbers[i] = i < 8        ? 0.0f
                                  : i < 32 * 8 ? -std::numeric_limits<float>::denorm_min()
                                               : 1.0f;
    }
    std::vector<float> rows[2];
    for (int i = 0; i < 2; ++i) {
      Prompt prompt;
      prompt.add(0, 0, 64, i == 0 ? 64 : 17);
      rows[i] = rows_of(run_prompt(sequences, prompt, 64, stream), prompt, 0);
    }
    CHECK(same_bits(rows[0], rows[1]));
  }

  TEST_CASE_TEMPLATE("an infinite or NaN value reaches only the rows of its token and later ones",
                     D, Fp32, Bf16, Fp16, Bf16Cache, Fp16Cache, Int8Fp32, Int8Bf16, Int8Fp16) {
    using T = typename D::T;
    if (checked_as_bf16<T>()) return;
    using KV = typename D::KV;
    if (tiny_shapes()) return;
    Stream stream;
    const std::int64_t length = 130;
    for (const std::int64_t HS : {8, 64}) {
      const auto clean = sequences_of<T, KV>(2, HS, {length});
      const std::int64_t C = clean[0].C();
      for (const int chunk : {33, kPromptTileRows}) {
        Prompt prompt;
        prompt.add(0, 0, length, chunk);
        const auto expected = rows_of(run_prompt(clean, prompt, length, stream), prompt, 0);
        for (const std::int64_t token : {0, 1, 20, 63, 64, 100, 129}) {
          for (const float value : {NAN, INFINITY, -INFINITY}) {
            auto damaged = clean;
            const auto [column, end] = damaged[0].set_value(token, HS + token % HS, value);
            auto out = rows_of(run_prompt(damaged, prompt, length, stream), prompt, 0);
            int finite = 0;
            for (std::int64_t i = token * C; i < length * C; ++i) {
              if (i % C < column || i % C >= end) continue;
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
                     Fp32, Bf16, Fp16, Bf16Cache, Fp16Cache, Int8Fp32, Int8Bf16, Int8Fp16) {
    using T = typename D::T;
    if (checked_as_bf16<T>()) return;
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
                     Bf16Cache, Fp16Cache, Int8Fp32, Int8Bf16, Int8Fp16) {
    using T = typename D::T;
    if (checked_as_bf16<T>()) return;
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
