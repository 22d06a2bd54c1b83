// Windows, their order, and the token buckets of a batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "llmc/io/data/batches.h"
#include "llmc/ops/token_buckets.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

namespace {

// A source of n consecutive tokens: first, first + 1, ...
TokenSource counting_source(std::int64_t n, const std::string& name = "text",
                            std::int32_t first = 0) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  TokenSource source(name);
  source.add(name, TokenData(std::move(tokens)));
  return source;
}

Windows windows(std::vector<TokenSource> sources, std::int64_t T, bool documents = false) {
  return Windows(std::move(sources), T, documents, "give a longer text");
}

std::int32_t token(const TokenSource& source, std::int64_t at) {
  std::int32_t value = -1;
  source.copy(at, 1, &value);
  return value;
}

std::vector<std::int64_t> permutation_of(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(permutation[i]);
  return all;
}

}  // namespace

TEST_SUITE("batches") {
  TEST_CASE("a permutation of any size contains every number once") {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000}) {
      auto all = permutation_of(n, 7, 0);
      std::sort(all.begin(), all.end());
      for (std::int64_t i = 0; i < n; ++i) CHECK(all[i] == i);
    }
  }

  TEST_CASE("the permutation shuffles and depends on seed and epoch") {
    const std::int64_t n = 1000;
    CHECK(permutation_of(n, 7, 0) == permutation_of(n, 7, 0));
    CHECK(permutation_of(n, 7, 0) != permutation_of(n, 8, 0));
    CHECK(permutation_of(n, 7, 0) != permutation_of(n, 7, 1));
    // Neighbours end up far apart: the mean distance of random positions is n/3, with a standard
    // error of about n/100.
    const auto all = permutation_of(n, 7, 0);
    double distance = 0;
    for (std::int64_t i = 1; i < n; ++i)
      distance += std::abs(static_cast<double>(all[i] - all[i - 1]));
    CHECK(distance / static_cast<double>(n - 1) == doctest::Approx(n / 3.0).epsilon(0.1));
  }

  TEST_CASE("an epoch takes each window once for any batch size") {
    const std::int64_t T = 4, tokens = 43;  // 10 windows, 2 tokens left over
    const ShuffledWindows text(windows({counting_source(tokens)}, T), 5);
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
    const ConsecutiveWindows text(windows({counting_source(14)}, 3));
    CHECK(text.windows() == 4);
    const Batch batch = text.batch(2, 5);
    CHECK(batch.B == 2);
    CHECK(batch.inputs == std::vector<std::int32_t>{6, 7, 8, 9, 10, 11});
    CHECK(batch.targets == std::vector<std::int32_t>{7, 8, 9, 10, 11, 12});
  }

  TEST_CASE("the validation split shares no token with training") {
    const auto split = split_validation({counting_source(1000), counting_source(40, "b")}, 16);
    CHECK(split.train[0].size() == 950);
    CHECK(split.validation[0].size() == 50);
    CHECK(token(split.train[0], 949) == 949);
    CHECK(token(split.validation[0], 0) == 950);
    CHECK(split.validation[0].name() == "the end of text");
    CHECK(split.train[1].size() == 23);
    CHECK(split.validation[1].size() == 17);
  }

  TEST_CASE("the error for a short text names it and the longest sequence that fits") {
    const std::string message = complaint([] {
      windows({counting_source(90), counting_source(8, "short.txt")}, 8);
    });
    CHECK(contains(message, "short.txt has 8 tokens"));
    CHECK(contains(message, "give a longer text, or reduce sequence length to at most 7"));
    CHECK(contains(complaint([] { split_validation({counting_source(9, "short.txt")}, 8); }),
                   "short.txt"));
  }

  TEST_CASE("several sources without weights are shuffled as one text") {
    const std::int64_t T = 4;
    const ShuffledWindows text(windows({counting_source(41), counting_source(81, "b", 1000)}, T),
                               3);
    CHECK(text.windows() == 30);
    for (const std::int64_t epoch : {0, 1}) {
      std::vector<std::int32_t> first;
      for (std::int64_t g = 0; g < 30; ++g)
        first.push_back(text.batch(30 * epoch + g, 1).inputs[0]);
      std::sort(first.begin(), first.end());
      for (std::int32_t w = 0; w < 30; ++w)
        CHECK(first[w] == (w < 10 ? 4 * w : 1000 + 4 * (w - 10)));
    }
  }

  TEST_CASE("weighted sources have exact fractions and repeat no window within an epoch") {
    const std::int64_t T = 4;
    const ShuffledWindows text(windows({counting_source(41), counting_source(81, "b", 1000)}, T), 3,
                               Interleave({7, 3}));
    std::vector<std::int32_t> a, b, all;
    for (std::int64_t g = 0; g < 400; ++g) {
      const Batch one = text.batch(g, 1);
      for (std::int64_t t = 0; t < T; ++t) CHECK(one.targets[t] == one.inputs[t] + 1);
      (one.inputs[0] < 1000 ? a : b).push_back(one.inputs[0]);
      all.insert(all.end(), one.inputs.begin(), one.inputs.end());
    }
    CHECK(a.size() == 280);
    CHECK(b.size() == 120);
    const auto check_epochs = [](const std::vector<std::int32_t>& firsts, std::size_t n) {
      for (std::size_t at = 0; at + n <= firsts.size(); at += n) {
        std::vector<std::int32_t> epoch(firsts.begin() + at, firsts.begin() + at + n);
        std::sort(epoch.begin(), epoch.end());
        CHECK(std::adjacent_find(epoch.begin(), epoch.end()) == epoch.end());
      }
      const std::vector<std::int32_t> one(firsts.begin(), firsts.begin() + n),
          two(firsts.begin() + n, firsts.begin() + 2 * n);
      CHECK(one != two);
    };
    check_epochs(a, 10);
    check_epochs(b, 20);
    CHECK(text.batch(0, 400).inputs == all);
    CHECK(text.batch(123, 7).inputs ==
          std::vector<std::int32_t>(all.begin() + 123 * T, all.begin() + 130 * T));
  }

  TEST_CASE("evaluation of several sources takes each window once and mixes the sources evenly") {
    const ConsecutiveWindows text(
        windows({counting_source(401), counting_source(101, "b", 1000)}, 4));
    CHECK(text.windows() == 125);
    std::vector<std::int32_t> first;
    for (std::int64_t w = 0; w < 125; ++w) first.push_back(text.batch(w, 1).inputs[0]);
    const auto count_of_b = [](auto begin, auto end) {
      return std::count_if(begin, end, [](std::int32_t token) { return token >= 1000; });
    };
    for (std::int64_t at = 0; at < 120; at += 20) {
      CHECK(count_of_b(first.begin() + at, first.begin() + at + 20) >= 3);
      CHECK(count_of_b(first.begin() + at, first.begin() + at + 20) <= 5);
    }
    std::sort(first.begin(), first.end());
    CHECK(std::adjacent_find(first.begin(), first.end()) == first.end());
  }

  TEST_CASE("documents begin at end-of-text tokens or at the positions of the file's index") {
    TokenSource marked("marked", 0, 9);
    marked.add("a", TokenData({1, 9, 2, 9, 9, 3, 4, 5, 9, 6}));
    CHECK(marked.has_documents());
    Batch batch = ConsecutiveWindows(windows({marked}, 4, true)).batch(0, 2);
    CHECK(batch.doc_start == std::vector<std::int32_t>{0, 1, 1, 3, 0, 0, 0, 0});

    TokenSource plain("plain");
    plain.add("a", TokenData(std::vector<std::int32_t>(10, 1)));
    CHECK_FALSE(plain.has_documents());

    // A document index takes precedence over end-of-text tokens. Its positions count from the start
    // of each file.
    const auto starts = [](std::vector<std::int64_t> places) {
      return std::make_shared<const std::vector<std::int64_t>>(std::move(places));
    };
    TokenSource listed("listed", 0, 9);
    listed.add("a", TokenData({1, 9, 2, 3, 4}), starts({0, 3}));
    listed.add("b", TokenData({5, 6, 7, 8, 10, 11, 12}), starts({0, 2}));
    CHECK(listed.has_documents());
    batch = ConsecutiveWindows(windows({listed}, 5, true)).batch(0, 2);
    CHECK(batch.doc_start == std::vector<std::int32_t>{0, 0, 0, 3, 3, 0, 0, 2, 2, 2});
    batch = ConsecutiveWindows(windows({listed.slice(2, 12, "part")}, 4, true)).batch(0, 1);
    CHECK(batch.doc_start == std::vector<std::int32_t>{0, 1, 1, 3});
    const TokenSource part = listed.slice(4, 12, "part");
    batch = ConsecutiveWindows(windows({part}, 7, true)).batch(0, 1);
    CHECK(batch.inputs == std::vector<std::int32_t>{4, 5, 6, 7, 8, 10, 11});
    CHECK(batch.doc_start == std::vector<std::int32_t>{0, 1, 1, 3, 3, 3, 3});
  }

  TEST_CASE("a token outside the vocabulary never reaches a batch; the error names its file") {
    TokenSource text("text", 100);
    text.add("a.bin", TokenData({1, 2, 3, 4, 5}));
    text.add("b.bin", TokenData({6, 7, 100, 9, 10}));
    const ConsecutiveWindows cut(windows({text.slice(1, 10, "text")}, 4));
    CHECK(cut.batch(0, 1).inputs == std::vector<std::int32_t>{2, 3, 4, 5});
    CHECK(contains(complaint([&] { cut.batch(1, 1); }), "b.bin: token 2 is 100"));
    CHECK(complaint([&] { text.check_ends(2); }).empty());
    CHECK(contains(complaint([&] { text.check_ends(3); }), "b.bin: token 2 is 100"));
  }
}

TEST_SUITE("interleave") {
  TEST_CASE("after any number of samples each source is within one of its exact count") {
    for (const std::vector<std::int64_t>& weights : {std::vector<std::int64_t>{1},
                                                     {7, 3},
                                                     {1, 1, 1},
                                                     {997, 2, 1},
                                                     {70, 20, 5, 5},
                                                     {3, 5, 7, 11, 13}}) {
      const Interleave mix(weights);
      const std::int64_t total = std::reduce(weights.begin(), weights.end());
      std::vector<std::int64_t> count(weights.size());
      for (std::int64_t g = 0; g < 3 * total; ++g) {
        const auto [source, sample] = mix[g];
        CHECK(sample == count[source]++);
        for (std::size_t s = 0; s < weights.size(); ++s) {
          const std::int64_t lag = (g + 1) * weights[s] - count[s] * total;
          CHECK(std::abs(lag) < total);
        }
      }
      for (std::size_t s = 0; s < weights.size(); ++s) CHECK(count[s] == 3 * weights[s]);
      CHECK(mix.fraction(0) == doctest::Approx(static_cast<double>(weights[0]) / total));
    }
  }

  TEST_CASE("weights are reduced by their common divisor; a long period is rejected") {
    const Interleave a({7, 3}), b({700'000'000'000, 300'000'000'000});
    for (std::int64_t g = 0; g < 50; ++g) CHECK(a[g].source == b[g].source);
    CHECK(contains(complaint([] { Interleave({999'999, 2}); }), "1000000"));
    CHECK(complaint([] { Interleave({999'999, 1}); }).empty());
    CHECK(contains(complaint([] { Interleave({1, 0}); }), "not above 0"));
  }
}

TEST_SUITE("token_buckets") {
  TEST_CASE("positions are grouped by token, both ascending") {
    const TokenBuckets buckets = make_token_buckets({5, 2, 5, 0, 2, 5});
    CHECK(buckets.token == std::vector<std::int32_t>{0, 2, 5});
    CHECK(buckets.start == std::vector<std::int32_t>{0, 1, 3, 6});
    CHECK(buckets.position == std::vector<std::int32_t>{3, 1, 4, 0, 2, 5});
  }

  TEST_CASE("ids of more than one radix digit are sorted correctly") {
    const auto ids = llmc_test::random_ints(3000, 3, 1 << 20);
    const TokenBuckets buckets = make_token_buckets(ids);
    CHECK(std::is_sorted(buckets.token.begin(), buckets.token.end()));
    std::vector<bool> is_listed(ids.size());
    for (std::size_t i = 0; i < buckets.token.size(); ++i) {
      for (std::int32_t at = buckets.start[i]; at < buckets.start[i + 1]; ++at) {
        CHECK(ids[buckets.position[at]] == buckets.token[i]);
        CHECK_FALSE(is_listed[buckets.position[at]]);
        is_listed[buckets.position[at]] = true;
      }
    }
    CHECK(buckets.start.back() == 3000);
  }

  TEST_CASE("an empty list of tokens has no buckets") {
    CHECK(make_token_buckets({}).token.empty());
  }
}
