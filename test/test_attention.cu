// Attention in addition to its cases in dev/ops/attention.h: scales, division of heads, errors.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/device/workers.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

constexpr std::int64_t kTime = 37, kHeads = 3, kHeadSize = 16, kChannels = kHeads * kHeadSize;

// qkv with `factor` times the queries.
template <class T>
std::vector<T> scaled_queries(std::vector<float> qkv, float factor) {
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    if (static_cast<std::int64_t>(i) % (3 * kChannels) < kChannels) qkv[i] *= factor;
  }
  std::vector<T> values;
  for (const float x : qkv) values.push_back(from_float<T>(x));
  return values;
}

template <class T>
struct AttentionResults {
  std::vector<T> out, d_qkv;
};

// Both passes of one batch row. `standard`: with the (T, T) matrix.
template <class T>
AttentionResults<T> attend(const std::vector<T>& qkv_values, bool standard,
                           std::optional<float> scale) {
  Stream stream;
  const std::int64_t n = kTime * kChannels;
  const DeviceArray<T> qkv(qkv_values, stream), out(std::vector<T>(n), stream);
  std::vector<T> gradient;
  for (const float x : random_floats(n, 2, 1.0)) gradient.push_back(from_float<T>(x));
  const DeviceArray<T> d_out(gradient, stream), d_qkv(std::vector<T>(3 * n), stream);
  const Buffer<float> lse_memory(kHeads * kTime);
  const Buffer<T> matrix(kHeads * kTime * kTime);
  const Buffer<float> scratch(flash_attention_backward_scratch(1, kTime, kHeads, kHeadSize));
  const auto rows = [](T* data, std::int64_t C) { return make_tensor(data, 1, kTime, C); };
  const auto lse = make_tensor(lse_memory.data(), 1, kHeads, kTime);
  const auto p = make_tensor(matrix.data(), 1, kHeads, kTime, kTime);
  const auto x = rows(qkv.data(), 3 * kChannels), y = rows(out.data(), kChannels);
  const auto d_x = rows(d_qkv.data(), 3 * kChannels), d_y = rows(d_out.data(), kChannels);
  const auto space = make_tensor(scratch.data(), scratch.size());
  if (standard) {
    standard_attention_forward<T>(y, lse, p, x, kHeads, nullptr, stream, {}, scale);
    standard_attention_backward<T>(d_x, p, d_y, x, y, lse, kHeads, space, stream, {}, scale);
  } else {
    flash_attention_forward<T>(y, lse, x, kHeads, nullptr, stream, {}, scale);
    flash_attention_backward<T>(d_x, d_y, x, y, lse, kHeads, nullptr, space, stream, {}, scale);
  }
  return {out.stored(), d_qkv.stored()};
}

// d_qkv of the first of B rows, with two documents per row and dropout.
template <class T>
std::vector<T> first_gradient(std::int64_t B, std::int64_t HS) {
  constexpr std::int64_t kLength = 200;
  Stream stream;
  const std::int64_t n = kLength * HS;
  const auto repeated = [&](std::int64_t size, int seed) {
    std::vector<T> values;
    for (std::int64_t b = 0; b < B; ++b) {
      for (const float x : random_floats(size, seed, 1.0)) values.push_back(from_float<T>(x));
    }
    return values;
  };
  std::vector<std::int32_t> starts(static_cast<std::size_t>(B * kLength));
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = i % kLength < 90 ? 0 : 90;
  const DeviceArray<std::int32_t> doc_start(starts, stream);
  const DeviceArray<T> qkv(repeated(3 * n, 1), stream), d_out(repeated(n, 2), stream),
      out(std::vector<T>(static_cast<std::size_t>(B * n)), stream),
      d_qkv(std::vector<T>(static_cast<std::size_t>(3 * B * n)), stream);
  const Buffer<float> lse_memory(B * kLength);
  const Buffer<float> scratch(flash_attention_backward_scratch(B, kLength, 1, HS));
  const auto rows = [&](T* data, std::int64_t C) { return make_tensor(data, B, kLength, C); };
  const auto lse = make_tensor(lse_memory.data(), B, 1, kLength);
  const auto x = rows(qkv.data(), 3 * HS), y = rows(out.data(), HS);
  const Dropout dropout = make_dropout(0.1, 3, 0, 0, 0);
  flash_attention_forward<T>(y, lse, x, 1, doc_start.data(), stream, dropout);
  flash_attention_backward<T>(rows(d_qkv.data(), 3 * HS), rows(d_out.data(), HS), x, y, lse, 1,
                              doc_start.data(), make_tensor(scratch.data(), scratch.size()), stream,
                              dropout);
  std::vector<T> gradient = d_qkv.stored();
  gradient.resize(static_cast<std::size_t>(3 * n));
  return gradient;
}

TEST_SUITE("attention") {
  // On the host, one head is divided among threads, and as many heads as threads are not.
  TEST_CASE_TEMPLATE("a gradient depends neither on other rows nor on threads, to the bit", T,
                     float, bf16) {
    const std::int64_t threads = workers().threads();
    for (const std::int64_t HS : {16, 72}) {
      CHECK(same_bits(first_gradient<T>(1, HS), first_gradient<T>(threads, HS)));
    }
  }

  TEST_CASE_TEMPLATE("twice the scale equals twice the queries, to the bit", T, float, bf16) {
    const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(kHeadSize)));
    const std::vector<float> qkv = random_floats(kTime * 3 * kChannels, 1, 1.0);
    for (const bool standard : {false, true}) {
      const auto scaled = attend<T>(scaled_queries<T>(qkv, 1), standard, 2 * usual);
      const auto doubled = attend<T>(scaled_queries<T>(qkv, 2), standard, {});
      CHECK(same_bits(scaled.out, doubled.out));
      const auto as_floats = [](const std::vector<T>& values, float factor) {
        std::vector<float> floats;
        for (const T& x : values) floats.push_back(factor * to_float(x));
        return floats;
      };
      // The gradient of the queries is that of doubled queries, times 2.
      std::vector<float> expected = as_floats(doubled.d_qkv, 1);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (static_cast<std::int64_t>(i) % (3 * kChannels) < kChannels) expected[i] *= 2;
      }
      CHECK(same_bits(as_floats(scaled.d_qkv, 1), expected));
      CHECK_FALSE(same_bits(scaled.out, attend<T>(scaled_queries<T>(qkv, 1), standard, {}).out));
    }
  }

  TEST_CASE("a scale that is not above 0 is refused") {
    const std::vector<float> qkv = random_floats(kTime * 3 * kChannels, 1, 1.0);
    for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
      CHECK(contains(complaint([&] { attend<float>(qkv, false, scale); }), "above 0"));
    }
  }

  TEST_CASE("flash attention rejects shapes that it does not support") {
    Stream stream;
    Buffer<float> memory(1 << 16);
    const auto forward = [&](std::int64_t T, std::int64_t C, std::int64_t NH,
                             std::int64_t skip = 0) {
      flash_attention_forward(make_tensor(memory.data() + skip, 1, T, C),
                              make_tensor(memory.data(), 1, NH, T),
                              make_tensor(memory.data(), 1, T, 3 * C), NH, nullptr, stream);
    };
    CHECK_THROWS_WITH_AS(forward(4, 24, 2), doctest::Contains("multiple of 8, from 8 to 128"),
                         Error);
    CHECK_THROWS_WITH_AS(forward(4, 136, 1), doctest::Contains("head size 136"), Error);
    CHECK_THROWS_WITH_AS(forward(4, 32, 3),
                         doctest::Contains("32 channels are not a multiple of 3 heads"), Error);
    CHECK_THROWS_WITH_AS(forward(0, 32, 1), doctest::Contains("T = 0"), Error);
    CHECK_THROWS_WITH_AS(forward(4, 32, 1, 1), doctest::Contains("16 bytes"), Error);
    const auto x = make_tensor(memory.data(), 1, 4, 32);
    const auto packed = make_tensor(memory.data(), 1, 4, 96);
    const auto lse = make_tensor(memory.data(), 1, 1, 4);
    CHECK_THROWS_WITH_AS(flash_attention_forward(x, lse, x, 1, nullptr, stream),
                         doctest::Contains("'qkv'"), Error);
    CHECK_THROWS_WITH_AS(flash_attention_backward(packed, x, packed, x, lse, 1, nullptr,
                                                  make_tensor(memory.data(), 7), stream),
                         doctest::Contains("scratch"), Error);
  }
}

}  // namespace
