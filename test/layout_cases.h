// Cases of training with a layout of ranks: their choices, sets of them that cover all pairs of
// choices, and the comparison with one rank and with the fp64 oracle.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "test/layout_errors.h"
#include "test/layout_rig.h"

namespace llmc_test {

// A layout and what is trained with it.
struct LayoutCase {
  Layout layout;
  LayoutOptions options;

  // The options of the training, without the layout.
  std::string work() const {
    const LayoutOptions& o = options;
    return "V " + std::to_string(o.vocabulary) + ", " + std::to_string(o.heads) + " heads, " +
           std::to_string(o.layers) + " layers, B " + std::to_string(o.B) +
           (o.dropout.embedding > 0 ? ", dropout" : "") + (o.masks_targets ? ", masked" : "") +
           (o.documents ? ", documents" : "") + (o.logits_rows > 0 ? ", chunks" : "") +
           (o.standard_attention ? ", standard attention" : "") +
           (o.differs_from_gpt2 ? ", differs from GPT-2" : "");
  }
  std::string text() const { return layout.text() + ", " + work(); }
};

inline constexpr DropoutRates kDropout{.embedding = 0.1, .attention = 0.1, .residual = 0.1};

// Every combination takes minutes.
inline bool long_run() {
  return std::getenv("LLMC_LONG") != nullptr;
}

// The smallest of these numbers of heads that tensor ranks can split.
inline std::int64_t heads_for(int tensor_ranks) {
  for (const std::int64_t heads : {4, 6, 8}) {
    if (heads % tensor_ranks == 0) return heads;
  }
  return tensor_ranks;
}

inline LayoutCase make_case(const Layout& layout, std::int64_t vocabulary, int number) {
  LayoutCase c{layout,
               {.vocabulary = vocabulary, .steps = 3, .heads = heads_for(layout.tensor_ranks)}};
  c.options.layers = std::max(2, layout.pipeline_ranks * layout.chunks);
  if (layout.has_uneven_stages())
    c.options.layers =
        std::accumulate(layout.stage_layers.begin(), layout.stage_layers.end(), std::int64_t{0});
  // The rest changes from case to case.
  if (number % 2 == 1) c.options.dropout = kDropout;
  c.options.masks_targets = number / 2 % 2 == 1;
  c.options.documents = number / 4 % 2 == 1;
  c.options.B = number % 3 == 2 ? 3 : 1;
  c.options.logits_rows = number % 5 < 2 ? 5 : 0;  // the last chunk has fewer rows
  c.options.standard_attention = number % 7 == 3;
  c.options.differs_from_gpt2 = number % 4 == 3;
  return c;
}

// The choices of a case whose pairs the tests cover: ranks, tensor ranks, stage, whether a shard
// group has all data ranks, sequence parallelism, micro-batches, dropout, masked targets, pipeline
// ranks, chunks, whether stages are uneven.
inline std::vector<int> choices_of(const LayoutCase& c) {
  return {c.layout.ranks,
          c.layout.tensor_ranks,
          c.layout.stage,
          c.layout.shard_ranks == c.layout.mesh().data_ranks() ? 1 : 0,
          c.layout.sequence_parallel ? 1 : 0,
          static_cast<int>(c.layout.micro_batches),
          c.options.dropout.embedding > 0 ? 1 : 0,
          c.options.masks_targets ? 1 : 0,
          c.layout.pipeline_ranks,
          c.layout.chunks,
          c.layout.has_uneven_stages() ? 1 : 0};
}

using ChoicePair = std::tuple<std::size_t, int, std::size_t, int>;
inline std::set<ChoicePair> pairs_of(const LayoutCase& c) {
  const std::vector<int> choices = choices_of(c);
  std::set<ChoicePair> pairs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) pairs.insert({j, choices[j], i, choices[i]});
  }
  return pairs;
}

// Cases, one after the other, each with the most pairs of choices that no case before it has, until
// they have all pairs.
inline std::vector<LayoutCase> covering(const std::vector<LayoutCase>& candidates) {
  std::set<ChoicePair> missing;
  for (const LayoutCase& c : candidates) missing.merge(pairs_of(c));
  std::vector<LayoutCase> chosen;
  while (!missing.empty()) {
    const LayoutCase* best = nullptr;
    std::ptrdiff_t best_count = 0;
    for (const LayoutCase& c : candidates) {
      const std::set<ChoicePair> pairs = pairs_of(c);
      const auto count = std::ranges::count_if(
          pairs, [&](const ChoicePair& pair) { return missing.contains(pair); });
      if (count > best_count) best = &c, best_count = count;
    }
    for (const ChoicePair& pair : pairs_of(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

// One rank's results, and the oracle's, of equal training.
struct LayoutReference {
  Results one;
  OracleResults exact;
};

inline const LayoutReference& reference_of(const LayoutCase& c) {
  static std::map<std::string, LayoutReference> all;
  constexpr std::int64_t kLarge = 1000;  // a reference with GPT-2's vocabulary takes 0.1 GiB
  if (c.options.vocabulary >= kLarge) all.clear();
  const std::int64_t batches = c.layout.batches();
  const auto [entry, is_new] =
      all.try_emplace(c.work() + ", " + std::to_string(batches) + " batches");
  if (is_new) {
    entry->second = {train_one_rank<float>(batches, c.options), train_oracle(batches, c.options)};
  }
  return entry->second;
}

// The errors of a case with options of its own, of which no other case has the reference.
inline std::vector<TensorError> errors_of(const LayoutCase& c) {
  return layout_errors(train_ranks<float>(c.layout, c.options),
                       train_one_rank<float>(c.layout.batches(), c.options),
                       train_oracle(c.layout.batches(), c.options));
}

// Checks that clipping at half of the true norm gives the weights of one rank.
inline void check_clipping(const Layout& layout) {
  LayoutCase c = make_case(layout, 211, 2);
  c.options.steps = 1;
  const auto norm =
      static_cast<double>(train_one_rank<float>(c.layout.batches(), c.options).norms[0]);
  c.options.steps = 3;
  c.options.grad_clip = norm / 2;
  CAPTURE(c.text());
  const TensorError worst = worst_error(errors_of(c));
  CHECK_MESSAGE(worst.error <= worst.bound(), worst.name);
}

// Checks that 2 and 4 micro-batches of a global batch agree with one.
inline void check_micro_batches(Layout layout) {
  const auto train_with = [&](std::int64_t micro_batches) {
    layout.micro_batches = micro_batches;
    return train_ranks<float>(layout, {.steps = 3,
                                       .dropout = kDropout,
                                       .heads = 4,
                                       .masks_targets = true,
                                       .B = 4 / micro_batches});
  };
  const Results whole = train_with(1);
  for (const std::int64_t micro_batches : {2, 4}) {
    CAPTURE(micro_batches);
    check_close(train_with(micro_batches), whole, 2e-6, 2e-6);
  }
}

// Trains each case and prints its worst tensor.
inline void compare_cases(const std::vector<LayoutCase>& cases) {
  std::cout << "case | worst tensor | against one rank | one rank against the oracle\n";
  for (const LayoutCase& c : cases) {
    CAPTURE(c.text());
    const LayoutReference& reference = reference_of(c);
    const TensorError worst = worst_error(
        layout_errors(train_ranks<float>(c.layout, c.options), reference.one, reference.exact));
    std::cout << error_row(c.text(), worst) << std::endl;
    CHECK_MESSAGE(worst.error <= worst.bound(), worst.name);
  }
}

}  // namespace llmc_test
