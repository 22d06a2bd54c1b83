// The toy language: its grammar's figures against samples, membership, and how little short
// contexts predict.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/ngram.h"
#include "data/toy_language.h"
#include "test/support.h"

using namespace llmc::toy;
using llmc_test::complaint;
using llmc_test::contains;

namespace {

std::string text_of(const Language& language, std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += language.words()[token] + " ";
  return text;
}

}  // namespace

TEST_SUITE("toy_language") {
  TEST_CASE("a grammar of two words has the entropy of its coin") {
    const Grammar grammar("1 | s | a\n3 | s | b s\n", {});
    // A sentence is a geometric number of b's, then a: length 1 / (1/4), entropy h(1/4) / (1/4).
    const double h = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75));
    CHECK(grammar.expected_length() == doctest::Approx(4));
    CHECK(grammar.entropy_per_sentence() == doctest::Approx(4 * h));
    const auto ids = [&](const std::string& words) {
      std::vector<std::int32_t> all;
      for (const char c : words) all.push_back(std::string(1, c) == grammar.words()[0] ? 0 : 1);
      return all;
    };
    CHECK(grammar.parse(ids("bba"))->log_probability ==
          doctest::Approx(std::log(0.25 * 0.75 * 0.75)));
    CHECK_FALSE(grammar.parse(ids("ab")).has_value());
    CHECK_FALSE(grammar.parse(ids("b")).has_value());
  }

  TEST_CASE("a choice on the right side divides the weight of its rule") {
    const Grammar grammar("1 | s | w:x\n1 | s | c\n1 | w:p | a\n1 | w:q | b\n",
                          {{"x", {"p", "q"}}});
    REQUIRE(grammar.words() == std::vector<std::string>{"c", "a", "b"});
    for (const std::int32_t word : {0, 1, 2}) {
      const double p = word == 0 ? 0.5 : 0.25;
      CHECK(grammar.parse(std::span(&word, 1))->log_probability == doctest::Approx(std::log(p)));
    }
  }

  TEST_CASE("impossible grammars are rejected") {
    CHECK(complaint([] { Grammar("1 | s | s a\n1 | s | a\n", {}); }) != "");
    // Left recursion behind a nonterminal that derives the empty string through another
    // nonterminal.
    CHECK(complaint([] { Grammar("1 | s | e s\n1 | s | a\n1 | e | f f\n1 | f |\n", {}); }) != "");
    CHECK(complaint([] { Grammar("1 | s | a s\n", {}); }) != "");
    CHECK(complaint([] { Grammar("nonsense\n", {}); }) != "");
    CHECK(complaint([] { Grammar("", {}); }) != "");
  }

  TEST_CASE(
      "the entropy is the mean cost of samples, and every sample has exactly one parse tree") {
    const Language language;
    const int sentences = llmc_test::tiny_shapes() ? 20 : 2000;
    double nats = 0, squares = 0, tokens = 0;
    std::set<std::string> distinct;
    for (int i = 0; i < sentences; ++i) {
      std::vector<std::int32_t> sentence;
      const double log_probability =
          language.grammar().sample(static_cast<std::uint64_t>(i), sentence);
      const auto parse = language.grammar().parse(sentence);
      REQUIRE(parse.has_value());
      // Unambiguous: the sentence's probability equals that of the one derivation that generated
      // it.
      CHECK(parse->log_probability == doctest::Approx(log_probability).epsilon(1e-9));
      CHECK(language.ends_sentence(sentence.back()));
      nats -= log_probability;
      squares += log_probability * log_probability;
      tokens += static_cast<double>(sentence.size());
      distinct.insert(text_of(language, sentence));
    }
    const double n = sentences, mean = nats / n;
    const double error = std::sqrt((squares / n - mean * mean) / n);
    CHECK(std::abs(mean - language.grammar().entropy_per_sentence()) < 4 * error);
    CHECK(tokens / n == doctest::Approx(language.grammar().expected_length()).epsilon(0.1));
    CHECK(static_cast<double>(distinct.size()) > 0.9 * n);
  }

  TEST_CASE("a sentence with a wrong word is not in the language") {
    const Language language;
    const std::string good = "the king that the old doctors see bows and he is powerful .";
    REQUIRE(language.parse(good));
    CHECK_FALSE(language.parse("the king that the old doctors see bow and he is powerful ."));
    CHECK_FALSE(language.parse("the king that the old doctors see bows and they are powerful ."));
    CHECK_FALSE(language.parse("the king that the old doctors see bows and he is woolly ."));
    CHECK_FALSE(language.parse("the king that the old doctors see bows and he is powerful"));
    CHECK_FALSE(
        language.parse("the king that the old doctors see xyzzy bows and he is powerful ."));
    CHECK_FALSE(language.parse("the king that the old doctors see bows and she is powerful ."));
    CHECK_FALSE(language.parse("the king that the old doctors sees bows and he is powerful ."));
    // A noun that is named again must be the same noun, and a quotation must be closed.
    REQUIRE(language.parse("the cows near the mill moo but Anna fears the cows ."));
    CHECK_FALSE(language.parse("the cows near the mill moo but Anna fears the cow ."));
    CHECK_FALSE(language.parse("the cows near the mill moo but Anna fears the boats ."));
    REQUIRE(language.parse("Bob says : \" the boats sink \" ."));
    CHECK_FALSE(language.parse("Bob says : \" the boats sink ."));
    // Two sentences are not one sentence.
    CHECK_FALSE(
        language.parse("Bob says : \" the boats sink \" . Bob says : \" the boats sink \" ."));
    CHECK_FALSE(language.parse(""));
  }

  TEST_CASE("the language has at least 200 words, and short contexts predict it badly") {
    const Language language;
    CHECK(language.words().size() >= 200);
    if (llmc_test::tiny_shapes()) return;
    const auto vocabulary = static_cast<std::int64_t>(language.words().size());
    const auto train = language.generate(1, 400'000), validation = language.generate(2, 50'000);
    CHECK(train != language.generate(2, 400'000));
    CHECK(language.generate(1, 1000) ==
          std::vector<std::int32_t>(train.begin(), train.begin() + 1000));
    const double entropy = language.entropy_per_token();
    CHECK(NgramModel(2, vocabulary, train).loss(validation) >= 1.3 * entropy);
    CHECK(NgramModel(3, vocabulary, train).loss(validation) >= 1.15 * entropy);
  }

  TEST_CASE("an n-gram model learns the distribution given n - 1 words") {
    std::vector<std::int32_t>
        text;  // 0 1 0 2 0 1 0 2 ...: two words of context determine the next, one does not
    for (int i = 0; i < 4000; ++i) text.push_back(i % 2 == 0 ? 0 : i % 4 == 1 ? 1 : 2);
    CHECK(NgramModel(2, 3, text).loss(text) == doctest::Approx(0.5 * std::log(2)).epsilon(0.02));
    CHECK(NgramModel(3, 3, text).loss(text) < 0.02);
  }
}
