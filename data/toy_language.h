// The toy language: English-like sentences from a seeded probabilistic grammar whose entropy is
// known exactly, so that a model trained on it can be told how far from perfect it is.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/grammar.h"
#include "llmc/device/error.h"
#include "llmc/io/mix.h"

namespace llmc::toy {

// The grammar. Weights are relative; `x` is a noun of the lexicon, `n` and `m` are numbers (one or
// many). A sentence speaks of one noun x, and all that is said of it far from where it stood (its
// number, its pronoun, what such a thing can do and be, the noun itself when it is named again)
// follows from x. What comes between is about anybody, so the last two words tell little.
inline constexpr std::string_view kRules = R"(
   4 | sentence         | subject:x:n verb:x:n , and pronoun:x:n is:n state:x .
   3 | sentence         | subject:x:n verb:x:n , but the person:m sees:m the noun:x:n .
   2 | sentence         | if subject:x:n verb:x:n then pronoun:x:n is:n state:x .
   2 | sentence         | the person:m says:m : " subject:x:n verb:x:n " .
   2 | sentence         | does:n subject:x:n verb:x:many ?

   1 | subject:x:n      | the noun:x:n modifier:x
   1 | subject:x:n      | the adjective noun:x:n modifier:x
   6 | modifier:x       |
   3 | modifier:x       | where the place
   5 | modifier:x       | who:x other:n sees:n
  10 | other:n          | the person:n
   4 | other:n          | the adjective person:n
   1 | other:n          | the person:n who other:m sees:m

   1 | does:one         | does
   1 | does:many        | do
   1 | is:one           | is
   1 | is:many          | are
   1 | says:one         | says
   1 | says:many        | say
)";

// Words that may stand in any sentence. All take a plain s, added in the number that is named.
inline constexpr std::string_view kCommonWords = R"(
  adjective   | old young tall small quiet clever kind strange
  where       | near behind beside
  place       | tower river garden market bridge gate fountain wall
  person:many | uncle aunt boy girl doctor guest neighbor stranger cousin judge
  sees:one    | see hear know admire fear remember follow trust
)";

// Words that belong together: what each noun is (he, she or it, in the column that holds it) can do
// and can be.
inline constexpr std::string_view kTopics = R"(
  he       | she       | it     | people do              | things do                  | people are               | things are
  king     | queen     | throne | reign rule command bow | gleam glitter dazzle shine | noble royal powerful     | golden jeweled precious
  pirate   | mermaid   | boat   | swim dive row sail     | float drift sink rock      | seasick salty tattooed   | leaky rusty seaworthy
  shepherd | milkmaid  | cow    | plow sow reap mow      | graze eat sleep chew       | sturdy sunburnt thrifty  | woolly gentle tame
  actor    | ballerina | drum   | sing dance mime act    | resonate hum squeak boom   | famous graceful talented | loud tuneful shrill
  monk     | nun       | bell   | pray chant kneel fast  | toll ring chime clang      | pious humble holy        | solemn ancient sacred
)";

class Language {
 public:
  Language() : grammar_(table(), {{"x", nouns()}, {"n", {"one", "many"}}, {"m", {"one", "many"}}}) {
    for (const std::string& word : words())
      ids_.emplace(word, static_cast<std::int32_t>(ids_.size()));
  }

  // Index = token id.
  const std::vector<std::string>& words() const { return grammar_.words(); }

  const Grammar& grammar() const { return grammar_; }

  // Nats per token in an endless text. Sentences are independent and say themselves where they end,
  // and the grammar is unambiguous (a test parses samples), so this is exact.
  double entropy_per_token() const {
    return grammar_.entropy_per_sentence() / grammar_.expected_length();
  }

  bool ends_sentence(std::int32_t token) const {
    return words()[token] == "." || words()[token] == "?";
  }

  // The first n_tokens of an endless text of independent sentences: `seed` chooses the text.
  std::vector<std::int32_t> generate(std::uint64_t seed, std::int64_t n_tokens) const {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; static_cast<std::int64_t>(tokens.size()) < n_tokens; ++i)
      grammar_.sample(mix64(seed, i), tokens);
    tokens.resize(static_cast<std::size_t>(n_tokens));
    return tokens;
  }

  // Whether this is one whole sentence of the language.
  bool parse(std::span<const std::int32_t> sentence) const {
    return grammar_.parse(sentence).has_value();
  }

  // The same for words with spaces between; an unknown word makes it no sentence.
  bool parse(std::string_view sentence) const {
    std::vector<std::int32_t> tokens;
    std::istringstream items{std::string(sentence)};
    for (std::string word; items >> word;) {
      const auto at = ids_.find(word);
      if (at == ids_.end()) return false;
      tokens.push_back(at->second);
    }
    return parse(tokens);
  }

 private:
  using Row = std::vector<std::vector<std::string>>;  // columns of words

  static std::vector<Row> rows(std::string_view table) {
    std::vector<Row> rows;
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
      if (line.find('|') == std::string::npos) continue;
      Row row;
      std::istringstream columns(line);
      for (std::string column; std::getline(columns, column, '|');) {
        std::istringstream items(column);
        row.emplace_back(std::istream_iterator<std::string>(items),
                         std::istream_iterator<std::string>());
      }
      rows.push_back(row);
    }
    return rows;
  }

  static std::vector<Row> topics() {
    std::vector<Row> all = rows(kTopics);
    all.erase(all.begin());  // the heading
    return all;
  }

  static std::vector<std::string> nouns() {
    std::vector<std::string> all;
    for (const Row& topic : topics())
      for (int gender = 0; gender < 3; ++gender)
        all.insert(all.end(), topic[gender].begin(), topic[gender].end());
    return all;
  }

  // The rules and, after them, one rule for each form of each word of the lexicon.
  static std::string table() {
    std::ostringstream out;
    out << kRules;
    const auto rule = [&](const std::string& left, const std::string& right) {
      out << "1 | " << left << " | " << right << "\n";
    };
    // `name` ends in the number in which words take the s, or in none.
    const auto forms = [&](const std::string& name, const std::vector<std::string>& stems) {
      const std::size_t colon = name.rfind(':');
      const std::string number = colon == std::string::npos ? "" : name.substr(colon + 1);
      for (const std::string& stem : stems) {
        if (number != "one" && number != "many") {
          rule(name, stem);
          continue;
        }
        const std::string base = name.substr(0, colon);
        rule(base + ":one", stem + (number == "one" ? "s" : ""));
        rule(base + ":many", stem + (number == "many" ? "s" : ""));
      }
    };
    for (const Row& row : rows(kCommonWords)) forms(row[0][0], row[1]);
    for (const Row& topic : topics()) {
      static constexpr std::array kPronouns{"he", "she", "it"};
      for (int gender = 0; gender < 3; ++gender) {
        const bool is_thing = gender == 2;
        for (const std::string& noun : topic[gender]) {
          forms("noun:" + noun + ":many", {noun});
          forms("verb:" + noun + ":one", topic[is_thing ? 4 : 3]);
          forms("state:" + noun, topic[is_thing ? 6 : 5]);
          rule("who:" + noun, is_thing ? "that" : "who");
          rule("pronoun:" + noun + ":one", kPronouns[gender]);
          rule("pronoun:" + noun + ":many", "they");
        }
      }
    }
    return out.str();
  }

  Grammar grammar_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace llmc::toy
