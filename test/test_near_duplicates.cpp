// Duplicate documents: words, the estimate of the Jaccard index against its definition, the
// probability that two documents are compared against its formula, and which documents are dropped.
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "llmc/tokenize/near_duplicates.h"
#include "test/support.h"

TEST_SUITE_BEGIN("near_duplicates");

namespace {

using llmc::MinHash;
using llmc::NearDuplicates;
using Words = std::vector<int>;

std::string text_of(const Words& words) {
  std::string text;
  for (const int word : words) text += "w" + std::to_string(word) + " ";
  return text;
}

Words random_words(std::mt19937_64& random, std::size_t count, int limit = 1'000'000) {
  Words words(count);
  for (int& word : words) word = static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  return words;
}

std::set<Words> shingles_of(const Words& words) {
  std::set<Words> shingles;
  for (std::size_t i = 0; i + llmc::kShingleWords <= words.size(); ++i) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    shingles.emplace(at, at + llmc::kShingleWords);
  }
  return shingles;
}

// |A n B| / |A u B|, by the definition.
double jaccard(const Words& a, const Words& b) {
  const auto A = shingles_of(a), B = shingles_of(b);
  std::size_t num_common = 0;
  for (const Words& shingle : A) num_common += B.count(shingle);
  return static_cast<double>(num_common) / static_cast<double>(A.size() + B.size() - num_common);
}

std::size_t words_in(const std::string& text) {
  std::size_t count = 0;
  llmc::for_each_word(text, [&](std::uint64_t) { ++count; });
  return count;
}

bool same_words(const std::string& a, const std::string& b) {
  std::vector<std::uint64_t> words_a, words_b;
  llmc::for_each_word(a, [&](std::uint64_t word) { words_a.push_back(word); });
  llmc::for_each_word(b, [&](std::uint64_t word) { words_b.push_back(word); });
  return words_a == words_b;
}

TEST_CASE("words are compared without case, punctuation and white space") {
  CHECK(same_words("The king's 2 ships -- sink.", "the KING s \n 2 ships \"sink\"!"));
  CHECK(same_words("caf\xc3\xa9 \xe2\x80\x9cnoir\xe2\x80\x9d\xc2\xa0!", "caf\xc3\xa9, noir"));
  CHECK(!same_words("caf\xc3\xa9", "cafe"));
  CHECK(!same_words("ab", "a b"));
  CHECK(!same_words("a b", "b a"));
  CHECK(words_in("") == 0);
  CHECK(words_in(" .,-\n") == 0);
  CHECK(words_in("\xd0\xbc\xd0\xb8\xd1\x80 x1 2y") == 3);            // Cyrillic: one word
  CHECK(words_in("\xe4\xb8\xad\xe6\x96\x87 x \xe4\xb8\xadx") == 5);  // Chinese: one per character
  CHECK(words_in("a\xff"
                 "b\xc3") == 2);  // bytes that are not UTF-8 separate words
}

TEST_CASE("exact duplicates are documents with equal bytes") {
  llmc::ExactDuplicates exact;
  CHECK(!exact.contains_or_add(llmc::content_hash("a")));
  CHECK(!exact.contains_or_add(llmc::content_hash("A")));
  CHECK(!exact.contains_or_add(llmc::content_hash("")));
  CHECK(exact.contains_or_add(llmc::content_hash("a")));
  CHECK(exact.contains_or_add(llmc::content_hash("")));
  CHECK(llmc::content_hash("a").low != llmc::content_hash("a").high);
}

// b is a with some of its words changed; each change affects up to five shingles.
TEST_CASE("the estimate equals the Jaccard index within its standard deviation") {
  std::mt19937_64 random(2);
  const int pairs = llmc_test::tiny_shapes() ? 40 : 400;
  for (const int changes : {0, 2, 6, 14, 40, 200}) {
    double error_sum = 0, square_sum = 0, variance = 0;
    for (int pair = 0; pair < pairs; ++pair) {
      const Words a = random_words(random, 200);
      Words b = a;
      for (int i = 0; i < changes; ++i) {
        b[random() % b.size()] = static_cast<int>(random() % 1'000'000);
      }
      const double s = jaccard(a, b);
      const double estimate =
          llmc::similarity(*llmc::min_hash(text_of(a)), *llmc::min_hash(text_of(b)));
      error_sum += estimate - s;
      square_sum += (estimate - s) * (estimate - s);
      variance += s * (1 - s) / llmc::kMinHashes;
    }
    INFO(changes);
    // Unbiased: the mean error is within 5 of its standard deviations; 1e-3 allows for 16-bit
    // values that are equal by chance.
    CHECK(std::abs(error_sum / pairs) <= 5 * std::sqrt(variance) / pairs + 1e-3);
    // The spread is right too: the mean square of n such errors has a relative deviation of about
    // sqrt(2 / n).
    CHECK(square_sum <= variance * (1 + 5 * std::sqrt(2.0 / pairs)) + 1e-6 * pairs);
  }
}

TEST_CASE("repetition and order of shingles do not change the hash") {
  const Words words{1, 2, 3, 4, 5, 6};
  Words words_twice = words;
  words_twice.insert(words_twice.end(), words.begin(), words.end());
  Words words_three_times = words_twice;
  words_three_times.insert(words_three_times.end(), words.begin(), words.end());
  CHECK(*llmc::min_hash(text_of(words_twice)) == *llmc::min_hash(text_of(words_three_times)));
  CHECK(*llmc::min_hash(text_of(words)) != *llmc::min_hash(text_of(words_twice)));
}

TEST_CASE("short texts are compared as a whole, and empty texts have no hash") {
  CHECK(!llmc::min_hash("").has_value());
  CHECK(!llmc::min_hash("...").has_value());
  CHECK(*llmc::min_hash("one two") == *llmc::min_hash("One, two."));
  CHECK(llmc::similarity(*llmc::min_hash("one two"), *llmc::min_hash("one two three")) < 0.1);
  CHECK(llmc::similarity(*llmc::min_hash("one two"), *llmc::min_hash("two one")) < 0.1);
}

TEST_CASE("bands have the largest length that detects 99% at each threshold") {
  for (const double threshold : {0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0}) {
    const llmc::Bands bands = llmc::bands_for(threshold);
    INFO(threshold);
    CHECK(bands.count * bands.rows <= static_cast<std::int64_t>(llmc::kMinHashes));
    CHECK(bands.probability(threshold) >= 0.99);
    const llmc::Bands longer{static_cast<std::int64_t>(llmc::kMinHashes) / (bands.rows + 1),
                             bands.rows + 1};
    CHECK((longer.count == 0 || longer.probability(threshold) < 0.99));
  }
  CHECK(llmc::bands_for(0.8).rows == 6);
  CHECK(llmc::bands_for(0.8).count == 21);
}

// Random hashes that agree in each value with probability s. The second is dropped if and only if
// the two are compared and their estimate reaches the threshold.
TEST_CASE("pairs are compared with the probability of the formula") {
  std::mt19937_64 random(3);
  const int pairs = llmc_test::tiny_shapes() ? 200 : 4000;
  const llmc::Bands bands = llmc::bands_for(0.8);
  for (const double s : {0.5, 0.65, 0.8, 0.95}) {
    int num_compared = 0, num_dropped = 0, num_expected = 0;
    for (int pair = 0; pair < pairs; ++pair) {
      MinHash a, b;
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<std::uint16_t>(random());
        const bool same = llmc::unit_interval(random()) < s;
        b[i] = same ? a[i] : static_cast<std::uint16_t>(a[i] + 1);
      }
      bool has_equal_band = false;
      for (std::int64_t band = 0; band < bands.count; ++band) {
        bool all = true;
        for (std::int64_t row = 0; row < bands.rows; ++row) {
          const auto i = static_cast<std::size_t>(band * bands.rows + row);
          all = all && a[i] == b[i];
        }
        has_equal_band = has_equal_band || all;
      }
      NearDuplicates near(0.8);
      REQUIRE(!near.contains_or_add(a));
      num_compared += has_equal_band ? 1 : 0;
      num_expected += has_equal_band && llmc::similarity(a, b) >= 0.8 ? 1 : 0;
      num_dropped += near.contains_or_add(b) ? 1 : 0;
    }
    INFO(s);
    CHECK(num_dropped == num_expected);
    const double p = bands.probability(s);
    CHECK(std::abs(num_compared - p * pairs) <= 5 * std::sqrt(pairs * p * (1 - p)) + 1);
  }
}

// The reference compares each document with all kept documents.
TEST_CASE("documents similar to an earlier kept one are dropped, with at most 1% missed") {
  std::mt19937_64 random(4);
  std::vector<Words> documents;
  const std::size_t count = llmc_test::tiny_shapes() ? 150 : 1500;
  for (std::size_t i = 0; i < count; ++i) {
    Words words = random_words(random, 20 + random() % 200);
    if (!documents.empty() && random() % 2 == 0) {  // an earlier document with some words changed
      words = documents[random() % documents.size()];
      for (std::size_t changes = random() % 5; changes > 0; --changes) {
        words[random() % words.size()] = static_cast<int>(random() % 1'000'000);
      }
    }
    documents.push_back(words);
  }
  NearDuplicates near(0.7), second(0.7);
  std::vector<MinHash> kept_hashes;
  std::size_t num_dropped = 0, num_missed = 0;
  for (const Words& words : documents) {
    const MinHash hash = *llmc::min_hash(text_of(words));
    const bool is_duplicate =
        std::any_of(kept_hashes.begin(), kept_hashes.end(),
                    [&](const MinHash& other) { return llmc::similarity(hash, other) >= 0.7; });
    const bool seen = near.contains_or_add(hash);
    CHECK(seen == second.contains_or_add(hash));
    CHECK((is_duplicate || !seen));  // never dropped without reason
    num_missed += is_duplicate && !seen ? 1 : 0;
    num_dropped += seen ? 1 : 0;
    if (!seen) kept_hashes.push_back(hash);
  }
  CHECK(num_dropped > count / 5);
  CHECK(num_dropped < count / 2);
  // One in a hundred is missed at the threshold, fewer above it.
  CHECK(static_cast<double>(num_missed) <= 0.01 * static_cast<double>(num_dropped) + 3);
}

// All documents share one band and differ in the others: each is compared with kMaxInBand of the
// documents before it. A document that agrees in another band too is found.
TEST_CASE("the cost of a band that many documents share is not quadratic") {
  std::mt19937_64 random(5);
  const auto rows = static_cast<std::size_t>(llmc::bands_for(0.8).rows);
  MinHash shared;
  const auto fill = [&](MinHash& hash, std::size_t from) {
    for (std::size_t i = from; i < hash.size(); ++i) hash[i] = static_cast<std::uint16_t>(random());
  };
  fill(shared, 0);
  NearDuplicates near(0.8);
  std::vector<MinHash> all;
  const std::int64_t count = 4 * llmc::kMaxInBand;
  for (std::int64_t i = 0; i < count; ++i) {
    MinHash hash = shared;
    fill(hash, rows);
    CHECK(!near.contains_or_add(hash));
    all.push_back(hash);
  }
  CHECK(near.comparisons() >= llmc::kMaxInBand * (count - llmc::kMaxInBand));
  CHECK(near.comparisons() <= llmc::kMaxInBand * count);
  for (const MinHash& hash : all) CHECK(near.contains_or_add(hash));
}

}  // namespace
TEST_SUITE_END();
