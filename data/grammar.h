// A probabilistic context-free grammar written as a table: sampling, exact entropy, exact
// membership.
//
// The table has one rule per line,
//
//     weight | left side     | right side
//        2   | does:one      | does
//        3   | clause:n      | the person:n sees:n the noun:x:m
//
// and stands for the plain context-free grammar in which every variable (`n`, `x`, `m`, after a
// colon) is replaced by every value of its domain. A variable of the left side is a feature that is
// passed to the right side, which expresses agreement. A variable of only the right side is a free
// choice, uniform over its domain. An item that is the left side of a rule is a nonterminal, any
// other is a word. Weights are relative among the rules of one left side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"

namespace llmc::toy {

class Grammar {
 public:
  // The values of each variable, e.g. {"n", {"one", "many"}}.
  using Domains = std::map<std::string, std::vector<std::string>>;

  // Expands `table`. The first rule's left side is the start symbol. Words have ids in the order in
  // which they first occur. Throws for a malformed line, for left recursion (which the recogniser
  // could not follow), and for rules that derive infinitely long sentences.
  Grammar(std::string_view table, const Domains& domains) {
    for_each_line(table, [&](const std::string& line) { add_line(line, domains); });
    require(!rules_.empty(), "grammar: the table is empty");
    name_symbols();
    normalise();
    find_nullable();
    for (std::size_t i = 0; i < alternatives_.size(); ++i) require_no_left_recursion(i);
    solve_expectations();
  }

  // Index = token id.
  const std::vector<std::string>& words() const { return words_; }

  // Number of plain rules after expansion.
  std::int64_t rule_count() const { return static_cast<std::int64_t>(rules_.size()); }

  // Expected words per sentence.
  double expected_length() const { return expectations_[0].length; }

  // Entropy of the choice among derivations, in nats per sentence. If the grammar is unambiguous,
  // this is the entropy of the sentence.
  double entropy_per_sentence() const { return expectations_[0].entropy; }

  // Appends one sentence, which depends only on `key`. Returns the log-probability of its
  // derivation in nats.
  double sample(std::uint64_t key, std::vector<std::int32_t>& out) const {
    std::vector<Symbol> pending{Symbol{false, 0}};
    std::uint64_t draws = 0;
    double log_probability = 0;
    while (!pending.empty()) {
      const Symbol symbol = pending.back();
      pending.pop_back();
      if (symbol.is_word) {
        out.push_back(symbol.id);
        continue;
      }
      const Rule& rule = choose(alternatives_[symbol.id], unit_interval(mix64(key, draws++)));
      log_probability += std::log(rule.probability);
      pending.insert(pending.end(), rule.right.rbegin(), rule.right.rend());
    }
    return log_probability;
  }

  struct Parse {
    double log_probability;  // log of the sum over all derivations, nats
    double derivations;      // their number; 1 in an unambiguous grammar
  };

  // All derivations of `sentence`, or nothing if it is not in the language.
  std::optional<Parse> parse(std::span<const std::int32_t> sentence) const {
    for (const Prefix& prefix : Recogniser{*this, sentence, {}}.prefixes(0, 0))
      if (prefix.end == sentence.size()) return Parse{std::log(prefix.probability), prefix.count};
    return std::nullopt;
  }

 private:
  struct Symbol {
    bool is_word;
    std::int32_t id;  // index into words_ or alternatives_
  };
  struct Rule {
    std::string left_name;
    std::vector<std::string> right_names;
    double probability;
    std::vector<Symbol> right;
  };
  using Alternatives = std::vector<std::int32_t>;  // indices of the rules with one left side

  // ---- from the table to plain rules

  template <class Action>
  static void for_each_line(std::string_view text, Action action) {
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
      const bool blank = line.find_first_not_of(" \t") == std::string::npos;
      if (!blank && line[line.find_first_not_of(" \t")] != '#') action(line);
    }
  }

  void add_line(const std::string& line, const Domains& domains) {
    std::istringstream columns(line);
    Rule rule{};
    char bar = 0, second_bar = 0;
    columns >> rule.probability >> bar >> rule.left_name >> second_bar;
    require(columns && bar == '|' && second_bar == '|' && rule.probability > 0,
            "grammar: not `weight | left side | right side`: " + line);
    for (std::string item; columns >> item;) rule.right_names.push_back(item);
    expand(rule, domains.begin(), domains);
  }

  // Replaces one variable after the other. A choice made on the right side divides the weight.
  void expand(const Rule& rule, Domains::const_iterator variable, const Domains& domains) {
    if (variable == domains.end()) {
      rules_.push_back(rule);
      return;
    }
    const auto& [name, values] = *variable;
    const auto next = std::next(variable);
    const bool on_left = mentions(rule.left_name, name);
    const bool on_right =
        std::any_of(rule.right_names.begin(), rule.right_names.end(),
                    [&](const std::string& item) { return mentions(item, name); });
    if (!on_left && !on_right) return expand(rule, next, domains);
    for (const std::string& value : values) {
      Rule one = rule;
      one.left_name = substitute(rule.left_name, name, value);
      for (std::string& item : one.right_names) item = substitute(item, name, value);
      if (!on_left) one.probability /= static_cast<double>(values.size());
      expand(one, next, domains);
    }
  }

  static bool mentions(const std::string& item, const std::string& variable) {
    return substitute(item, variable, "") != item;
  }

  // `noun:x:n` with x = king is `noun:king:n`.
  static std::string substitute(const std::string& item, const std::string& variable,
                                const std::string& value) {
    std::string result;
    for (std::size_t from = 0; from <= item.size();) {
      const std::size_t colon = std::min(item.find(':', from), item.size());
      const std::string part = item.substr(from, colon - from);
      if (from > 0) result += ':';
      result += from > 0 && part == variable ? value : part;
      from = colon + 1;
    }
    return result;
  }

  void name_symbols() {
    std::unordered_map<std::string, std::int32_t> nonterminals, words;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      const auto next_id = static_cast<std::int32_t>(alternatives_.size());
      const auto [at, added] = nonterminals.try_emplace(rules_[i].left_name, next_id);
      if (added) alternatives_.emplace_back();
      alternatives_[at->second].push_back(static_cast<std::int32_t>(i));
    }
    for (Rule& rule : rules_) {
      for (const std::string& name : rule.right_names) {
        if (const auto at = nonterminals.find(name); at != nonterminals.end()) {
          rule.right.push_back({false, at->second});
          continue;
        }
        require(name.size() < 2 || name.find(':') == std::string::npos,
                "grammar: no rule for " + name);
        const auto [at, added] = words.try_emplace(name, static_cast<std::int32_t>(words_.size()));
        if (added) words_.push_back(name);
        rule.right.push_back({true, at->second});
      }
    }
  }

  void normalise() {
    for (const Alternatives& alternatives : alternatives_) {
      double total = 0;
      for (std::int32_t rule : alternatives) total += rules_[rule].probability;
      for (std::int32_t rule : alternatives) rules_[rule].probability /= total;
    }
  }

  // ---- expected length and entropy of a nonterminal

  struct Expectation {
    double length = 0, entropy = 0;
  };

  // With p(r) the probability of rule r: A -> ..., the expected length and entropy are the solution
  // of
  //
  //     length(A)  = sum over r of p(r) (words in r + sum of length(B))
  //     entropy(A) = sum over r of p(r) (-log p(r) + sum of entropy(B))
  //
  // in which B are the nonterminals in r (Grenander 1976; Chi 1999, "Statistical properties of
  // probabilistic context-free grammars"). Both are linear; substitution converges at the rate at
  // which derivations end.
  void solve_expectations() {
    constexpr int kMaxRounds = 10000;
    expectations_.resize(alternatives_.size());
    for (int round = 0; round < kMaxRounds; ++round) {
      double change = 0;
      for (std::size_t i = alternatives_.size(); i-- > 0;) {
        const Expectation next = expectation_of(alternatives_[i]);
        change = std::max(change, std::abs(next.entropy - expectations_[i].entropy) +
                                      std::abs(next.length - expectations_[i].length));
        expectations_[i] = next;
      }
      if (change < 1e-13) return;
    }
    fail("grammar: the expected length of a sentence is not finite",
         "lower the weight of recursion");
  }

  Expectation expectation_of(const Alternatives& alternatives) const {
    Expectation sum;
    for (std::int32_t index : alternatives) {
      const Rule& rule = rules_[index];
      Expectation one{0, -std::log(rule.probability)};
      for (const Symbol& symbol : rule.right) {
        one.length += symbol.is_word ? 1 : expectations_[symbol.id].length;
        one.entropy += symbol.is_word ? 0 : expectations_[symbol.id].entropy;
      }
      sum.length += rule.probability * one.length;
      sum.entropy += rule.probability * one.entropy;
    }
    return sum;
  }

  const Rule& choose(const Alternatives& alternatives, double uniform) const {
    for (std::int32_t index : alternatives) {
      uniform -= rules_[index].probability;
      if (uniform < 0) return rules_[index];
    }
    return rules_[alternatives.back()];
  }

  // ---- recognition

  // One possible end of all derivations of a nonterminal that start at a given word: their
  // probability and number.
  struct Prefix {
    std::size_t end;
    double probability, count;
  };

  // Top-down with memoisation: prefixes(A, start) is computed once per (nonterminal, start), so the
  // time is polynomial in the length for any grammar.
  struct Recogniser {
    const Grammar& grammar;
    std::span<const std::int32_t> sentence;
    std::unordered_map<std::uint64_t, std::vector<Prefix>> memo;

    std::vector<Prefix> prefixes(std::int32_t nonterminal, std::size_t start) {
      const std::uint64_t key = static_cast<std::uint64_t>(nonterminal) << 32 | start;
      if (const auto at = memo.find(key); at != memo.end()) return at->second;
      std::vector<Prefix> all;
      for (std::int32_t index : grammar.alternatives_[nonterminal]) {
        const Rule& rule = grammar.rules_[index];
        std::vector<Prefix> partial{{start, rule.probability, 1}};
        for (const Symbol& symbol : rule.right) {
          if (partial.empty()) break;
          partial = advance(partial, symbol);
        }
        for (const Prefix& prefix : partial) add(all, prefix);
      }
      return memo[key] = all;
    }

    std::vector<Prefix> advance(const std::vector<Prefix>& from, const Symbol& symbol) {
      std::vector<Prefix> to;
      for (const Prefix& before : from) {
        if (symbol.is_word) {
          if (before.end < sentence.size() && sentence[before.end] == symbol.id)
            add(to, {before.end + 1, before.probability, before.count});
          continue;
        }
        for (const Prefix& part : prefixes(symbol.id, before.end))
          add(to, {part.end, before.probability * part.probability, before.count * part.count});
      }
      return to;
    }

    static void add(std::vector<Prefix>& all, const Prefix& one) {
      for (Prefix& prefix : all) {
        if (prefix.end != one.end) continue;
        prefix.probability += one.probability;
        prefix.count += one.count;
        return;
      }
      all.push_back(one);
    }
  };

  // A nonterminal is nullable (can be empty) if one of its rules has only nullable nonterminals.
  // Repeats until nothing changes.
  void find_nullable() {
    nullable_.resize(alternatives_.size());
    for (bool any_change = true; any_change;) {
      any_change = false;
      for (std::size_t i = 0; i < alternatives_.size(); ++i) {
        const bool empty =
            std::any_of(alternatives_[i].begin(), alternatives_[i].end(), [&](std::int32_t rule) {
              return std::all_of(rules_[rule].right.begin(), rules_[rule].right.end(),
                                 [&](const Symbol& s) { return !s.is_word && nullable_[s.id]; });
            });
        any_change |= empty && !nullable_[i];
        nullable_[i] = empty;
      }
    }
  }

  // Depth-first search over the leftmost nonterminals. If one is nullable, the next one can be
  // leftmost too.
  void require_no_left_recursion(std::size_t start) const {
    std::vector<char> reached(alternatives_.size(), 0);
    std::vector<std::size_t> pending{start};
    while (!pending.empty()) {
      const std::size_t at = pending.back();
      pending.pop_back();
      for (std::int32_t index : alternatives_[at]) {
        for (const Symbol& symbol : rules_[index].right) {
          if (symbol.is_word) break;
          require(static_cast<std::size_t>(symbol.id) != start,
                  "grammar: " + rules_[alternatives_[start][0]].left_name + " is left recursive");
          if (!reached[symbol.id]) pending.push_back(symbol.id);
          reached[symbol.id] = 1;
          if (!nullable_[symbol.id]) break;
        }
      }
    }
  }

  std::vector<Rule> rules_;
  std::vector<Alternatives> alternatives_;  // per nonterminal; 0 is the start symbol
  std::vector<char> nullable_;              // per nonterminal
  std::vector<std::string> words_;
  std::vector<Expectation> expectations_;
};

}  // namespace llmc::toy
