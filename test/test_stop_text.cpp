// Stop strings: the text ends before the one that completes first, however it is cut into pieces.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/infer/stop_text.h"
#include "test/support.h"

TEST_SUITE_BEGIN("stop_text");

namespace {

using llmc::StopText;
using Texts = std::vector<std::string>;

struct Ending {
  std::string text;
  bool stopped = false;
  bool operator==(const Ending&) const = default;
};

// The definition, on the whole text: the shortest prefix that ends with a stop string, without the
// longest one that it ends with.
Ending definition(const std::string& text, const Texts& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool ends =
          end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (ends && stop.size() > longest) longest = stop.size();
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

// Pushes the pieces. Checks that each output extends a text that the definition allows.
Ending pushed(const Texts& pieces, const Texts& stops, const Ending& expected) {
  StopText stop_text(stops);
  std::string text;
  for (const std::string& piece : pieces) {
    text += stop_text.push(piece);
    CHECK(expected.text.starts_with(text));
    CHECK(llmc::is_utf8(text));
  }
  const bool stopped = stop_text.stopped();
  text += stop_text.finish();
  CHECK(stop_text.finish().empty());
  return {text, stopped};
}

// The text in pieces of 1 to `max_length` characters of `characters`.
Texts random_pieces(const Texts& characters, std::uint64_t seed, std::int64_t max_length) {
  const auto lengths = llmc_test::random_ints(std::ssize(characters) + 1, seed, max_length);
  Texts pieces;
  for (std::size_t at = 0, i = 0; at < characters.size(); ++i) {
    pieces.emplace_back();
    for (std::int64_t n = lengths[i] + 1; n > 0 && at < characters.size(); --n) {
      pieces.back() += characters[at++];
    }
  }
  return pieces;
}

std::string joined(const Texts& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

}  // namespace

TEST_CASE("the stop string that completes first ends the text, and the longest of equal ends") {
  const auto ending = [](const std::string& text, const Texts& stops) {
    return pushed({text}, stops, definition(text, stops));
  };
  CHECK(ending("one\ntwo", {"\n"}) == Ending{"one", true});
  CHECK(ending("one two", {"\n"}) == Ending{"one two", false});
  CHECK(ending("one", {}) == Ending{"one", false});
  CHECK(ending("xabcd", {"abcd", "bc"}) == Ending{"xa", true});
  CHECK(ending("xabc", {"bc", "abc"}) == Ending{"x", true});
  CHECK(ending("xabc", {"abc", "bc"}) == Ending{"x", true});
  CHECK(ending("aab", {"ab", "aab"}) == Ending{"", true});
  CHECK(ending("ababac", {"abac"}) == Ending{"ab", true});
  CHECK(ending("only a part of the EN", {"END"}) == Ending{"only a part of the EN", false});
}

TEST_CASE("text that may begin a stop string is held back, and released as soon as it does not") {
  StopText stop_text({"\n\nQ:", "END"});
  CHECK(stop_text.push("a\n") == "a");
  CHECK(stop_text.push("b") == "\nb");
  CHECK(stop_text.push("\n\n\n") == "\n");
  CHECK(stop_text.push("E") == "\n\n");
  CHECK(stop_text.push("N") == "");
  CHECK(!stop_text.stopped());
  CHECK(stop_text.push("DLESS") == "");
  CHECK(stop_text.stopped());
  CHECK(stop_text.push("more") == "");
  CHECK(stop_text.finish() == "");
}

TEST_CASE("stop strings with characters of several bytes never split one") {
  const Texts characters = {"\u20ac", "\u20ad", "\u00e9", "a", "\u20ac", "\U0001f600"};
  const Texts stops = {"\u20ac\U0001f601", "\u00e8", "\u20ac\U0001f600"};
  const Ending expected = definition(joined(characters), stops);
  CHECK(expected.stopped);
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    CHECK(pushed(random_pieces(characters, seed, 3), stops, expected) == expected);
  }
}

TEST_CASE("every way to cut a text gives what the definition gives on the whole") {
  const Texts pool = {"aa",   "aab",  "aba", "b",     "bb",   "abab", "cab",
                      "caca", "bcbc", "c",   "aaaab", "abac", "acb",  "\u00e9a"};
  const Texts alphabet = {"a", "b", "c", "\u00e9"};
  std::int64_t num_stopped = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    const std::uint64_t key = 100 * seed;
    const auto choices = llmc_test::random_ints(4, key, std::ssize(pool));
    Texts stops;
    for (std::int64_t i = 0; i <= choices[3] % 3; ++i) {
      stops.push_back(pool[static_cast<std::size_t>(choices[static_cast<std::size_t>(i)])]);
    }
    // A stop string that completes together with another one.
    if (seed % 2 == 0 && stops[0].size() > 1 && stops[0][0] == 'a') {
      stops.push_back(stops[0].substr(1));
    }
    Texts characters;
    const std::int64_t length = 1 + static_cast<std::int64_t>(seed % 24);
    for (const auto i :
         llmc_test::random_ints(length, key + 1, 2 + static_cast<std::int64_t>(seed % 3))) {
      characters.push_back(alphabet[static_cast<std::size_t>(i)]);
    }
    const Ending expected = definition(joined(characters), stops);
    num_stopped += expected.stopped ? 1 : 0;
    if (characters.size() <= 6) {
      for (unsigned cuts = 0; cuts < 1u << (characters.size() - 1); ++cuts) {
        Texts pieces(1);
        for (std::size_t i = 0; i < characters.size(); ++i) {
          pieces.back() += characters[i];
          if ((cuts >> i & 1) != 0) pieces.emplace_back();
        }
        CHECK(pushed(pieces, stops, expected) == expected);
      }
    } else {
      for (std::uint64_t i = 0; i < 50; ++i) {
        const Texts pieces =
            random_pieces(characters, key + 2 + i, 1 + static_cast<std::int64_t>(i % 5));
        CHECK(pushed(pieces, stops, expected) == expected);
      }
    }
  }
  CHECK(num_stopped > 300);
  CHECK(num_stopped < 900);
}

TEST_CASE("empty stop strings and stop strings that are not UTF-8 are errors") {
  CHECK_THROWS_WITH_AS(StopText({"a", ""}), doctest::Contains("empty"), llmc::Error);
  CHECK_THROWS_WITH_AS(StopText({"\xC3"}), doctest::Contains("not UTF-8"), llmc::Error);
}

TEST_SUITE_END();
