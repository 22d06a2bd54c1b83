// Token and position embedding, forward and backward, against the fp64 oracle.
#include <doctest/doctest.h>

#include <map>

#include "llmc/ops/embedding.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

struct Shape {
  std::int64_t B, T, C, V, context;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 1, 8, 3, 1}, {2, 9, 40, 4, 11}};
  if (!tiny_shapes())
    all.insert(
        all.end(),
        {{3, 7, 264, 11, 7}, {2, 33, 768, 50, 64}, {1, 19, 1600, 29, 20}, {9, 101, 8, 5, 101}});
  return all;
}

// On average at least half of the tokens are id 1, so that one bucket is long. Id 0 does not occur.
std::vector<std::int32_t> skewed_tokens(std::int64_t n, std::int64_t V) {
  std::vector<std::int32_t> tokens = random_ints(n, 31, 2 * (V - 1));
  for (std::int32_t& t : tokens) t = t >= V - 1 ? 1 : t + 1;
  return tokens;
}

struct Buckets {
  Buffer<std::int32_t> token, start, position;

  Buckets(const std::vector<std::int32_t>& tokens, Stream& stream) {
    std::map<std::int32_t, std::vector<std::int32_t>> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows[tokens[i]].push_back(static_cast<std::int32_t>(i));
    }
    std::vector<std::int32_t> ids, starts = {0}, positions;
    for (const auto& [id, where] : rows) {
      ids.push_back(id);
      positions.insert(positions.end(), where.begin(), where.end());
      starts.push_back(static_cast<std::int32_t>(positions.size()));
    }
    token = upload(ids, stream);
    start = upload(starts, stream);
    position = upload(positions, stream);
  }
  TokenBucketsView view() const {
    return {token.data(), start.data(), position.data(), token.size()};
  }
};

TEST_SUITE("embedding") {
  TEST_CASE_TEMPLATE("the forward pass matches the definition", T, float, bf16, fp16) {
    Stream stream;
    for (const Shape s : shapes()) {
      const std::vector<std::int32_t> tokens = skewed_tokens(s.B * s.T, s.V);
      const Data<T> wte(s.V * s.C, 32), wpe(s.context * s.C, 33);
      const Guarded<T> out(std::vector<T>(s.B * s.T * s.C), stream);
      const Guarded<T> d_wte(wte.stored, stream), d_wpe(wpe.stored, stream);
      const Guarded<std::int32_t> ids(tokens, stream);
      embedding_forward<T>(make_tensor(out.data(), s.B * s.T, s.C),
                           make_tensor(ids.data(), s.B * s.T), make_tensor(d_wte.data(), s.V, s.C),
                           make_tensor(d_wpe.data(), s.context, s.C), s.T, stream);
      const auto expected = oracle::embedding_forward({tokens.begin(), tokens.end()}, wte.exact,
                                                      wpe.exact, s.B, s.T, s.C);
      CHECK(relative_l2(out.values(), expected) < kTolerance<T>);
      CHECK(out.intact());
    }
  }

  TEST_CASE_TEMPLATE("the backward pass adds in a fixed order and changes no other row", T, float,
                     bf16, fp16) {
    Stream stream;
    for (const Shape s : shapes()) {
      const std::int64_t padded_V = s.V + 3;
      const std::vector<std::int32_t> tokens = skewed_tokens(s.B * s.T, s.V);
      const Buckets buckets(tokens, stream);
      const Data<T> dy(s.B * s.T * s.C, 34);
      const Guarded<T> d_out(dy.stored, stream);
      const std::vector<float> start_wte = random_floats(padded_V * s.C, 35);
      const std::vector<float> start_wpe = random_floats(s.context * s.C, 36);
      const auto run = [&](bool wte_frozen = false, bool wpe_frozen = false) {
        const Guarded<float> d_wte(start_wte, stream), d_wpe(start_wpe, stream);
        float* const no_gradient = nullptr;
        embedding_backward<T>(make_tensor(wte_frozen ? no_gradient : d_wte.data(), padded_V, s.C),
                              make_tensor(wpe_frozen ? no_gradient : d_wpe.data(), s.context, s.C),
                              make_tensor(d_out.data(), s.B * s.T, s.C), buckets.view(), s.T,
                              stream);
        CHECK(d_wte.intact());
        CHECK(d_wpe.intact());
        return std::pair(d_wte.values(), d_wpe.values());
      };
      const auto [got_wte, got_wpe] = run();
      auto expected = oracle::embedding_backward(dy.exact, {tokens.begin(), tokens.end()}, s.B, s.T,
                                                 s.C, padded_V, s.context);
      oracle::add_to(expected.wte, oracle::to_double(start_wte));
      oracle::add_to(expected.wpe, oracle::to_double(start_wpe));
      CHECK(relative_l2(got_wte, expected.wte) < 1e-6);
      CHECK(relative_l2(got_wpe, expected.wpe) < 1e-6);

      // Rows without a gradient: token 0, the vocabulary's padding, and positions from T on.
      for (std::int64_t c = 0; c < s.C; ++c) CHECK_EQ(got_wte[c], start_wte[c]);
      for (std::int64_t i = s.V * s.C; i < padded_V * s.C; ++i) CHECK_EQ(got_wte[i], start_wte[i]);
      for (std::int64_t i = s.T * s.C; i < s.context * s.C; ++i) CHECK_EQ(got_wpe[i], start_wpe[i]);

      const auto [again_wte, again_wpe] = run();
      CHECK(same_bits(again_wte, got_wte));
      CHECK(same_bits(again_wpe, got_wpe));

      // A frozen embedding leaves the gradient of the other embedding unchanged.
      const auto [frozen_wte, beside_wte] = run(true, false);
      CHECK(same_bits(frozen_wte, start_wte));
      CHECK(same_bits(beside_wte, got_wpe));
      const auto [beside_wpe, frozen_wpe] = run(false, true);
      CHECK(same_bits(beside_wpe, got_wte));
      CHECK(same_bits(frozen_wpe, start_wpe));
      CHECK(same_bits(run(true, true).first, start_wte));
      CHECK(same_bits(run(true, true).second, start_wpe));
    }
  }

  TEST_CASE("sequences longer than the context are rejected") {
    Stream stream;
    float x[64];
    std::int32_t tokens[4] = {};
    CHECK_THROWS_WITH_AS(
        embedding_forward<float>(make_tensor(x, 4, 8), make_tensor(tokens, 4), make_tensor(x, 1, 8),
                                 make_tensor(x, 3, 8), 4, stream),
        doctest::Contains("longer than the context"), Error);
  }
}

}  // namespace
