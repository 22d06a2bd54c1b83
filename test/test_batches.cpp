// Windows, their order, and the token buckets of a batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "llmc/io/batches.h"
#include "llmc/ops/token_buckets.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

namespace {

TokenData counting(std::int64_t n) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenData(std::move(tokens));
}

std::vector<std::int64_t> order(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(permutation[i]);
  return all;
}

}  // namespace

TEST_SUITE("batches") {
  TEST_CASE("every size's permutation meets every number once") {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000}) {
      auto all = order(n, 7, 0);
      std::sort(all.begin(), all.end());
      for (std::int64_t i = 0; i < n; ++i) CHECK(all[i] == i);
    }
  }

  TEST_CASE("the order depends on seed and epoch, and shuffles") {
    const std::int64_t n = 1000;
    CHECK(order(n, 7, 0) == order(n, 7, 0));
    CHECK(order(n, 7, 0) != order(n, 8, 0));
    CHECK(order(n, 7, 0) != order(n, 7, 1));
    // Neighbours end up far apart: of random places the mean distance is n/3, give or take n/100.
    const auto all = order(n, 7, 0);
    double distance = 0;
    for (std::int64_t i = 1; i < n; ++i)
      distance += std::abs(static_cast<double>(all[i] - all[i - 1]));
    CHECK(distance / static_cast<double>(n - 1) == doctest::Approx(n / 3.0).epsilon(0.1));
  }

  TEST_CASE("an epoch takes each window once, whatever the batch size") {
    const std::int64_t T = 4, tokens = 43;  // 10 windows, 2 tokens left over
    const ShuffledWindows text(counting(tokens), T, 5, "text");
    CHECK(text.windows() == 10);
    std::vector<std::int32_t> first, all;
    for (std::int64_t g = 0; g < 10; ++g) {
      const Batch one = text.batch(g, 1);
      for (std::int64_t t = 0; t < T; ++t) CHECK(one.targets[t] == one.inputs[t] + 1);
      CHECK(one.inputs[0] % T == 0);
      first.push_back(one.inputs[0]);
      all.insert(all.end(), one.inputs.begin(), one.inputs.end());
    }
    auto sorted = first;
    std::sort(sorted.begin(), sorted.end());
    for (std::int32_t w = 0; w < 10; ++w) CHECK(sorted[w] == 4 * w);
    CHECK(text.batch(0, 10).inputs == all);
    CHECK(text.batch(7, 3).inputs == std::vector<std::int32_t>(all.begin() + 28, all.end()));
    CHECK(text.batch(10, 10).inputs != all);  // the next epoch has another order
  }

  TEST_CASE("evaluation takes the windows in order; the last batch may be smaller") {
    const ConsecutiveWindows text(counting(14), 3, "text");
    CHECK(text.windows() == 4);
    const Batch batch = text.batch(2, 5);
    CHECK(batch.B == 2);
    CHECK(batch.inputs == std::vector<std::int32_t>{6, 7, 8, 9, 10, 11});
    CHECK(batch.targets == std::vector<std::int32_t>{7, 8, 9, 10, 11, 12});
  }

  TEST_CASE("the validation split shares no token with training") {
    const auto split = split_validation(counting(1000), 8, "text");
    CHECK(split.train.size() == 950);
    CHECK(split.validation.size() == 50);
    CHECK(split.validation[0] == 950);
    CHECK(split_validation(counting(40), 16, "text").validation.size() == 17);
  }

  TEST_CASE("a text that is too short is named, with what would fit") {
    const std::string said = complaint([] { ShuffledWindows(counting(8), 8, 1, "short.txt"); });
    CHECK(contains(said, "short.txt has 8 tokens"));
    CHECK(contains(said, "--seq-len of at most 7"));
    CHECK(contains(complaint([] { split_validation(counting(9), 8, "short.txt"); }), "short.txt"));
  }
}

TEST_SUITE("token_buckets") {
  TEST_CASE("positions are grouped by token, both ascending") {
    const TokenBuckets buckets = make_token_buckets({5, 2, 5, 0, 2, 5});
    CHECK(buckets.token == std::vector<std::int32_t>{0, 2, 5});
    CHECK(buckets.start == std::vector<std::int32_t>{0, 1, 3, 6});
    CHECK(buckets.position == std::vector<std::int32_t>{3, 1, 4, 0, 2, 5});
  }

  TEST_CASE("large ids take the second digit's pass") {
    const auto ids = llmc_test::random_ints(3000, 3, 1 << 20);
    const TokenBuckets buckets = make_token_buckets(ids);
    CHECK(std::is_sorted(buckets.token.begin(), buckets.token.end()));
    std::vector<bool> seen(ids.size());
    for (std::size_t i = 0; i < buckets.token.size(); ++i) {
      for (std::int32_t at = buckets.start[i]; at < buckets.start[i + 1]; ++at) {
        CHECK(ids[buckets.position[at]] == buckets.token[i]);
        CHECK_FALSE(seen[buckets.position[at]]);
        seen[buckets.position[at]] = true;
      }
    }
    CHECK(buckets.start.back() == 3000);
  }

  TEST_CASE("no tokens, no buckets") {
    CHECK(make_token_buckets({}).token.empty());
  }
}
