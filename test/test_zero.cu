// ZeRO: ranks that shard the training state compute the steps of one rank. Ranks are threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "test/layout_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

constexpr double kClip = 0.015;  // less than half of the norms of these gradients

// All stages, shard groups and one or three micro-batches per rank. Under sanitizers, only one
// size.
std::vector<Layout> layouts(const std::vector<int>& numbers_of_ranks) {
  std::vector<Layout> all;
  for (const int ranks : numbers_of_ranks) {
    for (const std::int64_t micro_batches : {1, 3}) {
      if (tiny_shapes() && micro_batches == 1) continue;
      for (const int stage : {0, 1, 2, 3}) {
        for (int shard_ranks = 1; shard_ranks <= ranks; ++shard_ranks) {
          // Stage 0 shards nothing, the others have at least two shards.
          if (ranks % shard_ranks != 0 || (stage == 0) != (shard_ranks == 1)) continue;
          all.push_back({ranks, stage, shard_ranks, micro_batches});
        }
      }
    }
  }
  return all;
}

// Layouts whose sums have the same order: the first number is equal for layouts of equal bits.
std::tuple<int, int, std::int64_t, bool> order_of(const Layout& layout) {
  const bool every_micro_batch = layout.stage >= 2 && layout.micro_batches > 1;
  const int shards = layout.stage == 0 ? layout.ranks : layout.shard_ranks;
  return {layout.ranks, shards, layout.micro_batches, every_micro_batch};
}

// Trains with every layout: equal bits where the sums are the same, and in fp32 within the bounds
// of one rank. Every rank clips.
template <class T>
void compare_layouts(const std::vector<Layout>& all, const LayoutOptions& options) {
  std::map<std::int64_t, Results> one_rank;
  std::map<decltype(order_of({})), Results> with_order;
  for (const Layout& layout : all) {
    CAPTURE(layout.text());
    const Results ranks = train_ranks<T>(layout, options);
    const auto [same_order, is_first] = with_order.try_emplace(order_of(layout), ranks);
    if (!is_first) CHECK(same_bits(ranks, same_order->second));
    if (sizeof(T) != 4) continue;
    Results& one = one_rank[layout.batches()];
    if (one.losses.empty()) one = train_one_rank<T>(layout.batches(), options);
    CHECK(one.norms[0] > 2 * kClip);  // clipping has an effect
    check_close(ranks, one, 5e-7, 2e-6);
  }
}

// More ranks and GPT-2's vocabulary take minutes.
bool long_run() {
  return std::getenv("LLMC_LONG") != nullptr;
}

std::vector<int> numbers_of_ranks() {
  if (tiny_shapes()) return {2};
  if (long_run()) return {2, 3, 4, 5, 8};
  return {2, 3, 4};
}

std::vector<std::int64_t> vocabularies() {
  if (long_run()) return {211, 50257};
  return {211};
}

}  // namespace

TEST_SUITE("zero") {
  TEST_CASE("one micro-batch on each rank adds up like as many micro-batches on one rank") {
    for (const Layout& layout : layouts(numbers_of_ranks())) {
      if (layout.micro_batches > 1 || (layout.stage > 0 && layout.shard_ranks < layout.ranks)) {
        continue;
      }
      CAPTURE(layout.text());
      const Results one = train_one_rank<float>(layout.ranks, {});
      const Results ranks = train_ranks<float>(layout, {});
      CHECK(same_bits(ranks.losses, one.losses));
      // A micro-batch adds to the gradient of wte twice.
      CHECK(same_bits(ranks.gradients, one.gradients, "wte.weight"));
      CHECK(relative_l2(ranks.gradients.at("wte.weight"), one.gradients.at("wte.weight")) <= 2e-7);
    }
  }

  TEST_CASE_TEMPLATE("every layout trains like one rank, and like the layouts with the same sums",
                     T, float, bf16, fp16) {
    const std::vector<Layout> all = layouts(numbers_of_ranks());
    const std::size_t expected = tiny_shapes() ? 4 : numbers_of_ranks().size() > 3 ? 58 : 30;
    CHECK(all.size() == expected);
    if (tiny_shapes() && sizeof(T) != 4) return;  // half precision differs only in kernels
    for (const std::int64_t vocabulary : vocabularies()) {
      for (const bool dropout : {false, true}) {
        if (tiny_shapes() && !dropout) continue;
        CAPTURE(vocabulary);
        CAPTURE(dropout);
        LayoutOptions options{
            .vocabulary = vocabulary, .steps = tiny_shapes() ? 1 : 3, .grad_clip = kClip};
        if (dropout) {
          options.dropout = {.embedding = 0.1, .attention = 0.1, .residual = 0.1};
          options.stochastic_rounding = sizeof(T) == 2;
        }
        compare_layouts<T>(all, options);
      }
    }
  }

  TEST_CASE("GPT-2's vocabulary, which pads wte, and more ranks") {
    if (tiny_shapes()) return;
    for (const Layout& layout : {Layout{.ranks = 3, .stage = 3, .shard_ranks = 3},
                                 Layout{.ranks = 5, .stage = 1, .shard_ranks = 5},
                                 Layout{.ranks = 8, .stage = 2, .shard_ranks = 4}}) {
      CAPTURE(layout.text());
      const LayoutOptions options{.vocabulary = 50257, .grad_clip = kClip};
      const Results one = train_one_rank<float>(layout.ranks, options);
      CHECK(one.norms[0] > 2 * kClip);
      check_close(train_ranks<float>(layout, options), one, 5e-7, 2e-6);
    }
  }

  TEST_CASE("two runs of a layout have the same bits") {
    if (tiny_shapes()) return;
    const Layout layout{.ranks = 4, .stage = 2, .shard_ranks = 2, .micro_batches = 2};
    CHECK(same_bits(train_ranks<bf16>(layout, {.steps = 2}),
                    train_ranks<bf16>(layout, {.steps = 2})));
  }
}
