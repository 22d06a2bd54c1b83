// The toy language: English-like sentences from a seeded probabilistic grammar. Its entropy is
// known exactly, so the gap between the loss of a model and the optimum is known too.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/grammar.h"
#include "llmc/base/error.h"
#include "llmc/base/hash.h"

namespace llmc::toy {

// The grammar. Weights are relative; `x` is a noun of the lexicon, `n` and `m` are numbers (one or
// many). A sentence is about one noun x. Everything that later refers to x follows from it: its
// number, its pronoun, what it can do and be, and the repeated noun. The words in between do not
// depend on x, so the last two words predict little.
inline constexpr std::string_view kRules = R"(
   3 | sentence    | subject:x:n verb:x:n and pronoun:x:n is:n state:x .
   3 | sentence    | subject:x:n verb:x:n but name sees:one the noun:x:n .
   2 | sentence    | if subject:x:n verb:x:n then pronoun:x:n is:n state:x .
   2 | sentence    | name says : " subject:x:n verb:x:n " .

   2 | subject:x:n | the noun:x:n places relative
   1 | subject:x:n | the adjective noun:x:n places relative
   8 | places      |
   1 | places      | where the place places
   2 | relative    |
   1 | relative    | that other:m sees:m
   2 | other:n     | the person:n
   1 | other:n     | the adjective person:n

   1 | is:one      | is
   1 | is:many     | are
)";

// Words that can occur in any sentence. Those of a group with a number take a plain s in this
// number and none in the other one.
inline constexpr std::string_view kCommonWords = R"(
  adjective   | old young tall small quiet clever kind strange busy happy
  name        | Anna Bob Clara David Emma Felix Greta Hugo
  where       | near behind beside
  place       | tower river garden market bridge gate fountain wall mill well
  person:many | uncle aunt boy girl doctor guest neighbor stranger cousin teacher
  sees:one    | see hear know admire fear remember follow trust
)";

// Words that belong together: a person after its pronoun, and a thing; what they can do and what
// they can be.
inline constexpr std::string_view kTopics = R"(
  is  | person    | thing  | people do                    | things do                       | people are                    | things are
  he  | king      | throne | reign rule command bow judge | gleam glitter dazzle shine glow | noble royal powerful wise     | golden jeweled precious carved
  she | mermaid   | boat   | swim dive sail row float     | drift sink rock leak creak      | salty tattooed brave wild     | leaky rusty seaworthy wooden
  he  | shepherd  | cow    | plow sow reap dig mow        | graze eat sleep moo chew        | sturdy sunburnt thrifty muddy | woolly gentle tame spotted
  she | ballerina | drum   | dance leap spin twirl mime   | resonate hum boom rattle roll   | famous graceful talented slim | loud tuneful noisy round
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

  // Entropy of an infinite text in nats per token. It is exact, because sentences are independent
  // and mark their own end, and the grammar is unambiguous (a test parses samples).
  double entropy_per_token() const {
    return grammar_.entropy_per_sentence() / grammar_.expected_length();
  }

  bool ends_sentence(std::int32_t token) const { return words()[token] == "."; }

  // The first num_tokens tokens of an infinite text of independent sentences; `seed` selects the
  // text.
  std::vector<std::int32_t> generate(std::uint64_t seed, std::int64_t num_tokens) const {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; static_cast<std::int64_t>(tokens.size()) < num_tokens; ++i)
      grammar_.sample(mix64(seed, i), tokens);
    tokens.resize(static_cast<std::size_t>(num_tokens));
    return tokens;
  }

  // Whether this is one complete sentence of the language.
  bool parse(std::span<const std::int32_t> sentence) const {
    return grammar_.parse(sentence).has_value();
  }

  // The same for words separated by spaces. An unknown word is in no sentence.
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
  // Columns of kTopics. kDoes and kIs are the distances from a noun's column to the columns of what
  // it does and what it is.
  enum Column { kPerson = 1, kThing = 2, kDoes = 2, kIs = 4 };

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
    for (const Row& topic : topics()) {
      for (const int kind : {kPerson, kThing}) all.push_back(topic[kind][0]);
    }
    return all;
  }

  // The rules, and after them one rule for each form of each word of the lexicon.
  static std::string table() {
    std::ostringstream out;
    out << kRules;
    const auto rule = [&](const std::string& left, const std::string& right) {
      out << "1 | " << left << " | " << right << "\n";
    };
    // `name` ends in the number in which words take the s, or in no number.
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
      for (const int kind : {kPerson, kThing}) {
        const std::string& noun = topic[kind][0];
        forms("noun:" + noun + ":many", {noun});
        forms("verb:" + noun + ":one", topic[kind + kDoes]);
        forms("state:" + noun, topic[kind + kIs]);
        rule("pronoun:" + noun + ":one", kind == kThing ? "it" : topic[0][0]);
        rule("pronoun:" + noun + ":many", "they");
      }
    }
    return out.str();
  }

  Grammar grammar_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace llmc::toy
