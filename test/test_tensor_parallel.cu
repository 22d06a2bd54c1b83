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

#include "test/layout_cases.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// All layouts, each with 2 to 4 micro-batches.
std::vector<LayoutCase> all_cases(std::int64_t vocabulary) {
  std::vector<LayoutCase> all;
  for (Layout layout : tensor_layouts()) {
    const auto number = static_cast<int>(all.size());
    layout.micro_batches = 2 + number % 3;
    all.push_back(make_case(layout, vocabulary, number));
  }
  return all;
}

// All layouts with every number of micro-batches, with and without dropout and masked targets.
std::vector<LayoutCase> all_combinations() {
  std::vector<LayoutCase> all;
  for (Layout layout : tensor_layouts()) {
    for (const int number : {0, 1, 2, 3}) {
      for (layout.micro_batches = 2; layout.micro_batches <= 4; ++layout.micro_batches) {
        all.push_back(make_case(layout, 211, number + 4 * static_cast<int>(all.size() % 35)));
      }
    }
  }
  return all;
}

// Vocabularies that leave the last slices short or empty.
std::vector<LayoutCase> odd_vocabularies() {
  std::vector<LayoutCase> all;
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

}  // namespace

TEST_SUITE("tensor parallel") {
  TEST_CASE("every layout with tensor ranks trains like one rank") {
    CHECK(tensor_layouts().size() == 78);
    const std::vector<LayoutCase> odd = odd_vocabularies();
    CHECK(odd.size() == 24);
    if (tiny_shapes()) return;
    if (long_run()) {
      compare_cases(all_cases(211));
      compare_cases(all_cases(50257));
      compare_cases(odd);
      return;
    }
    std::vector<LayoutCase> chosen = covering(all_combinations());
    CHECK(chosen.size() == 26);  // all pairs need at least 25
    for (const std::size_t i : {0, 7}) chosen[i].options.vocabulary = 50257;
    compare_cases(chosen);
    compare_cases({odd[1], odd[4], odd[11]});
  }

  TEST_CASE_TEMPLATE("layouts with the same sums have the same bits", T, float, bf16, fp16) {
    if (tiny_shapes()) return;
    // Tensor ranks, whether rows are spread, shards, and whether each micro-batch is reduced alone.
    std::map<std::tuple<int, int, bool, int, bool>, Results> with_order;
    std::int64_t num_equal = 0;
    for (Layout layout : tensor_layouts()) {
      if (!long_run() && layout.ranks != 4 && (sizeof(T) != 4 || layout.ranks != 8)) continue;
      CAPTURE(layout.text());
      layout.micro_batches = 2;
      const LayoutOptions options{.steps = 2,
                                  .dropout = kDropout,
                                  .stochastic_rounding = sizeof(T) == 2,
                                  .grad_clip = 0.01,
                                  .heads = heads_for(layout.tensor_ranks),
                                  .layers = 2};
      const Results results = train_ranks<T>(layout, options);
      const int shards = layout.stage == 0 ? layout.mesh().data_ranks() : layout.shard_ranks;
      const bool every_micro_batch = layout.stage >= 2 && shards > 1;
      const auto [same_order, is_first] = with_order.try_emplace(
          {layout.ranks, layout.tensor_ranks, layout.sequence_parallel, shards, every_micro_batch},
          results);
      if (!is_first) CHECK(same_bits(results, same_order->second));
      if (!is_first) ++num_equal;
      if (long_run() || layout.stage % 2 == 1) {
        CHECK(same_bits(results, train_ranks<T>(layout, options)));
      }
    }
    CHECK(num_equal >= 8);
    CHECK(with_order.size() >= 6);
  }

  TEST_CASE(
      "spreading rows changes no bit of the first loss and of gradients of split parameters") {
    if (tiny_shapes()) return;
    for (Layout layout : tensor_layouts()) {
      if (layout.sequence_parallel || layout.ranks != 6) continue;
      CAPTURE(layout.text());
      const LayoutOptions options{
          .dropout = kDropout, .heads = heads_for(layout.tensor_ranks), .layers = 2};
      const Results whole = train_ranks<float>(layout, options);
      layout.sequence_parallel = true;
      const Results spread = train_ranks<float>(layout, options);
      CHECK(same_bits(spread.losses, whole.losses));
      const ParameterTable table = gpt2_parameters(options.config(), {0, layout.tensor_ranks});
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        const auto& ours = spread.gradients.at(spec.name);
        if (spec.part.split) CHECK(same_bits(ours, whole.gradients.at(spec.name)));
        CHECK(relative_l2(ours, whole.gradients.at(spec.name)) <= 2e-6);
      }
    }
  }

  TEST_CASE("clipping at half of the true norm gives the weights of one rank") {
    if (tiny_shapes()) return;
    for (Layout layout : tensor_layouts()) {
      if (!long_run() && (layout.ranks != 6 || layout.stage % 2 == 0)) continue;
      layout.micro_batches = 2;
      check_clipping(layout);
    }
  }

  TEST_CASE("2 and 4 micro-batches of a global batch agree with one") {
    if (tiny_shapes()) return;
    for (const bool sequence_parallel : {false, true}) {
      for (const auto& [ranks, stage] : {std::pair(2, 0), std::pair(4, 1), std::pair(4, 3)}) {
        check_micro_batches({.ranks = ranks,
                             .stage = stage,
                             .shard_ranks = stage == 0 ? 1 : ranks / 2,
                             .tensor_ranks = 2,
                             .sequence_parallel = sequence_parallel});
      }
    }
  }

  TEST_CASE("with the default eps, the first step is that of one rank") {
    if (tiny_shapes()) return;
    for (Layout layout : tensor_layouts()) {
      if (!long_run() && (layout.ranks != 8 || layout.stage % 2 == 1)) continue;
      layout.micro_batches = 2;
      LayoutCase c = make_case(layout, 211, 1);
      c.options.eps = default_optimizer().eps;
      c.options.steps = 1;
      CAPTURE(c.text());
      std::vector<TensorError> errors = errors_of(c);
      // AdamW makes a step of the learning rate out of the keys' gradient, which is rounding noise.
      std::erase_if(errors, [](const TensorError& error) {
        return error.name.starts_with("weight of") && error.name.ends_with("(keys)");
      });
      const TensorError worst = worst_error(errors);
      CHECK_MESSAGE(worst.error <= worst.bound(), worst.name);
    }
  }

  TEST_CASE_TEMPLATE("half precision trains like one rank within the rounding of its activations",
                     T, bf16, fp16) {
    if (tiny_shapes()) return;
    for (const bool sequence_parallel : {false, true}) {
      const LayoutCase c = make_case({.ranks = 4,
                                      .stage = 1,
                                      .shard_ranks = 2,
                                      .micro_batches = 2,
                                      .tensor_ranks = 2,
                                      .sequence_parallel = sequence_parallel},
                                     211, 1);
      const Results ranks = train_ranks<T>(c.layout, c.options);
      const Results one = train_one_rank<T>(c.layout.batches(), c.options);
      // Each of the 2 (2 L + 1) sums over ranks rounds partial sums, which one rank does not;
      // the errors of independent roundings add up in squares.
      const double rounding = oracle::kRounding<T> * std::sqrt(2.0 * (2 * 2 + 1));
      CHECK(relative(ranks.losses[0], one.losses[0]) <= rounding / 4);
      CHECK(relative(ranks.norms[0], one.norms[0]) <= rounding);
      CHECK(worst_difference(ranks.gradients, one.gradients) <= 2 * rounding);
    }
  }

  TEST_CASE("under the race checker, tensor ranks train a step") {
    if (!tiny_shapes()) return;
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{.ranks = 2,
                          .micro_batches = 2,
                          .tensor_ranks = 2,
                          .sequence_parallel = sequence_parallel};
      const LayoutOptions options{.vocabulary = 31, .dropout = kDropout, .heads = 2, .layers = 1};
      const Results one = train_one_rank<float>(layout.batches(), options);
      check_close(train_ranks<float>(layout, options), one, 2e-6, 2e-6);
    }
  }
}
