// Tensor and sequence parallelism: any number of tensor ranks computes the steps of one rank. Ranks
// are threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "test/layout_errors.h"
#include "test/layout_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// A layout and what is trained with it.
struct Case {
  Layout layout;
  LayoutOptions options;

  std::string text() const {
    return layout.text() + ", V " + std::to_string(options.vocabulary) +
           (options.B > 1 ? ", B " + std::to_string(options.B) : "") +
           (options.dropout.embedding > 0 ? ", dropout" : "") +
           (options.masks_targets ? ", masked" : "") + (options.documents ? ", documents" : "");
  }
};

bool long_run() {
  return std::getenv("LLMC_LONG") != nullptr;
}

// The smallest of these numbers of heads that tensor ranks can split.
std::int64_t heads_for(int tensor_ranks) {
  for (const std::int64_t heads : {4, 6, 8}) {
    if (heads % tensor_ranks == 0) return heads;
  }
  return tensor_ranks;
}

Case make_case(const Layout& layout, std::int64_t vocabulary, int number) {
  Case c{layout, {.vocabulary = vocabulary, .steps = 3, .heads = heads_for(layout.tensor_ranks)}};
  c.options.layers = 2;
  // What else is trained changes from case to case.
  if (number % 2 == 1) c.options.dropout = {.embedding = 0.1, .attention = 0.1, .residual = 0.1};
  c.options.masks_targets = number / 2 % 2 == 1;
  c.options.documents = number / 4 % 2 == 1;
  c.options.B = number % 3 == 2 ? 3 : 1;
  return c;
}

// Every number of tensor ranks over 2, 4, 6 and 8 ranks, every stage and shard group, with and
// without sequence parallelism, with GPT-2's vocabulary and a small one.
std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const std::int64_t vocabulary : {211, 50257}) {
    for (const auto& [ranks, tensor_ranks] : std::vector<std::pair<int, int>>{
             {2, 2}, {4, 2}, {4, 4}, {6, 2}, {6, 3}, {6, 6}, {8, 2}, {8, 4}, {8, 8}}) {
      const int data_ranks = ranks / tensor_ranks;
      for (const int stage : {0, 1, 2, 3}) {
        for (int shard_ranks = 1; shard_ranks <= data_ranks; ++shard_ranks) {
          // Stage 0 shards nothing, the others have at least two shards if there are data ranks.
          const bool has_shards = shard_ranks > 1 || data_ranks == 1;
          if (data_ranks % shard_ranks != 0 || (stage == 0 ? shard_ranks > 1 : !has_shards))
            continue;
          for (const bool sequence_parallel : {false, true}) {
            const auto number = static_cast<int>(all.size());
            all.push_back(make_case({.ranks = ranks,
                                     .stage = stage,
                                     .shard_ranks = shard_ranks,
                                     .micro_batches = 2 + number % 3,
                                     .tensor_ranks = tensor_ranks,
                                     .sequence_parallel = sequence_parallel},
                                    vocabulary, number));
          }
        }
      }
    }
  }
  return all;
}

// Vocabularies that leave the last slices short or empty.
std::vector<Case> odd_vocabularies() {
  std::vector<Case> all;
  for (const std::int64_t vocabulary : {17, 127, 128, 31123}) {
    for (const int tensor_ranks : {2, 4, 8}) {
      for (const bool sequence_parallel : {false, true}) {
        all.push_back(make_case({.ranks = tensor_ranks,
                                 .micro_batches = 2,
                                 .tensor_ranks = tensor_ranks,
                                 .sequence_parallel = sequence_parallel},
                                vocabulary, static_cast<int>(all.size())));
      }
    }
  }
  return all;
}

// The choices of a case whose pairs the tests cover: ranks, tensor ranks, stage, whether a shard
// group has all data ranks, sequence parallelism, micro-batches, dropout, masked targets.
std::vector<int> choices_of(const Case& c) {
  return {c.layout.ranks,
          c.layout.tensor_ranks,
          c.layout.stage,
          c.layout.shard_ranks == c.layout.mesh().data_ranks() ? 1 : 0,
          c.layout.sequence_parallel ? 1 : 0,
          static_cast<int>(c.layout.micro_batches),
          c.options.dropout.embedding > 0 ? 1 : 0,
          c.options.masks_targets ? 1 : 0};
}

using Pair = std::tuple<std::size_t, int, std::size_t, int>;
std::set<Pair> pairs_of(const Case& c) {
  const std::vector<int> choices = choices_of(c);
  std::set<Pair> pairs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) pairs.insert({j, choices[j], i, choices[i]});
  }
  return pairs;
}

// Cases, one after the other, each with the most pairs of choices that no case before it has, until
// they have all pairs.
std::vector<Case> covering(const std::vector<Case>& candidates) {
  std::set<Pair> missing;
  for (const Case& c : candidates) missing.merge(pairs_of(c));
  std::vector<Case> chosen;
  while (!missing.empty()) {
    const Case* best = nullptr;
    std::ptrdiff_t best_count = 0;
    for (const Case& c : candidates) {
      const std::set<Pair> pairs = pairs_of(c);
      const auto count =
          std::ranges::count_if(pairs, [&](const Pair& pair) { return missing.contains(pair); });
      if (count > best_count) best = &c, best_count = count;
    }
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

// One rank's results, and the oracle's, of equal training.
struct Reference {
  Results one;
  OracleResults exact;
};
using ReferenceKey =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, bool, std::int64_t>;

const Reference& reference_of(const Case& c) {
  static std::map<ReferenceKey, Reference> all;
  const LayoutOptions& o = c.options;
  const ReferenceKey key = {c.layout.batches(), o.vocabulary, o.heads, o.dropout.embedding > 0,
                            o.masks_targets,    o.documents,  o.B};
  const auto [entry, is_new] = all.try_emplace(key);
  if (is_new) {
    entry->second = {train_one_rank<float>(c.layout.batches(), o),
                     train_oracle(c.layout.batches(), o)};
  }
  return entry->second;
}

// Trains each case and prints its worst tensor.
void compare_cases(const std::vector<Case>& cases) {
  std::cout << "case | worst tensor | against one rank | one rank against the oracle\n";
  for (const Case& c : cases) {
    CAPTURE(c.text());
    const Reference& reference = reference_of(c);
    const TensorError worst = worst_error(
        layout_errors(train_ranks<float>(c.layout, c.options), reference.one, reference.exact));
    std::cout << error_row(c.text(), worst) << std::endl;
    CHECK_MESSAGE(worst.error <= worst.bound(), worst.name);
  }
}

}  // namespace

TEST_SUITE("tensor parallel") {
  TEST_CASE("every layout with tensor ranks trains like one rank") {
    const std::vector<Case> all = all_cases(), odd = odd_vocabularies();
    CHECK(all.size() == 2 * 78);
    CHECK(odd.size() == 24);
    if (tiny_shapes()) return;
    std::vector<Case> small;
    for (const Case& c : all) {
      if (c.options.vocabulary == 211) small.push_back(c);
    }
    const std::vector<Case> chosen = covering(small);
    std::cout << chosen.size() << " cases cover all pairs of choices\n";
    compare_cases(chosen);
  }
}
