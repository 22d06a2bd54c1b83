// Pipeline parallelism: any mesh computes the steps of one rank. Ranks are threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "test/layout_cases.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Micro-batches of case `number`: 2 to 4, or for interleaved schedules once or twice the pipeline
// ranks.
std::int64_t micro_batches_of(const Layout& layout, int number) {
  return layout.chunks == 1 ? 2 + number % 3 : layout.pipeline_ranks * (1 + number % 2);
}

// All layouts, each with one number of micro-batches.
std::vector<LayoutCase> all_cases(std::int64_t vocabulary) {
  std::vector<LayoutCase> all;
  for (Layout layout : pipeline_layouts()) {
    const auto number = static_cast<int>(all.size());
    layout.micro_batches = micro_batches_of(layout, number);
    all.push_back(make_case(layout, vocabulary, number));
  }
  return all;
}

// All layouts with several numbers of micro-batches, with and without dropout and masked targets.
std::vector<LayoutCase> all_combinations() {
  std::vector<LayoutCase> all;
  for (Layout layout : pipeline_layouts()) {
    for (const int number : {0, 1, 2, 3}) {
      for (const int i : {0, 1, 2}) {
        layout.micro_batches = micro_batches_of(layout, i);
        all.push_back(make_case(layout, 211, number + 4 * static_cast<int>(all.size() % 35)));
      }
    }
  }
  return all;
}

}  // namespace

TEST_SUITE("pipeline parallel") {
  TEST_CASE("every layout with pipeline ranks trains like one rank") {
    CHECK(pipeline_layouts().size() == 261);
    if (tiny_shapes()) return;
    if (long_run()) {
      compare_cases(all_cases(211));
      compare_cases(all_cases(50257));
      return;
    }
    std::vector<LayoutCase> chosen = covering(all_combinations());
    CHECK(chosen.size() == 48);  // all pairs
    for (const std::size_t i : {0, 7}) chosen[i].options.vocabulary = 50257;
    compare_cases(chosen);
  }

  TEST_CASE("pipeline ranks alone have the bits of one rank, except in the gradient of wte") {
    if (tiny_shapes()) return;
    for (const auto& [p, v, m] : {std::tuple(2, 1, 1), std::tuple(2, 1, 4), std::tuple(3, 1, 4),
                                  std::tuple(4, 1, 2), std::tuple(2, 2, 2), std::tuple(2, 2, 4)}) {
      const Layout layout{.ranks = p, .micro_batches = m, .pipeline_ranks = p, .chunks = v};
      CAPTURE(layout.text());
      const LayoutOptions options{.dropout = kDropout, .heads = 2, .layers = 4};
      const Results one = train_one_rank<float>(m, options);
      const Results ranks = train_ranks<float>(layout, options);
      CHECK(llmc_test::same_bits(ranks.losses, one.losses));
      CHECK(same_bits(ranks.gradients, one.gradients, "wte.weight"));
    }
  }

  TEST_CASE_TEMPLATE("layouts with the same sums have the same bits", T, float, bf16, fp16) {
    if (tiny_shapes()) return;
    // Data ranks, tensor ranks, whether rows are spread, shards, and whether each micro-batch is
    // reduced alone. The number of pipeline ranks, chunks and the cuts of stages change no bit.
    std::map<std::tuple<int, int, bool, int, bool>, Results> with_order;
    std::int64_t num_equal = 0;
    for (Layout layout : pipeline_layouts()) {
      const bool is_large = sizeof(T) == 4 && layout.ranks == 8 && layout.stage % 2 == 1;
      const bool is_chosen = layout.ranks == 4 || is_large;
      if (!long_run() && (!is_chosen || layout.pipeline_ranks > 4)) continue;
      CAPTURE(layout.text());
      layout.micro_batches = 4;
      if (layout.chunks > 1 && layout.micro_batches % layout.pipeline_ranks != 0) continue;
      const std::int64_t layers = long_run() ? 16 : 8;
      if (layout.has_uneven_stages())
        layout.stage_layers.back() += layers - layout.pipeline_ranks - 1;
      const LayoutOptions options{.steps = 2,
                                  .dropout = kDropout,
                                  .stochastic_rounding = sizeof(T) == 2,
                                  .grad_clip = 0.01,
                                  .heads = heads_for(layout.tensor_ranks),
                                  .layers = layers};
      const Results results = train_ranks<T>(layout, options);
      const int data_ranks = layout.mesh().data_ranks();
      const int shards = layout.stage == 0 ? data_ranks : layout.shard_ranks;
      const bool every_micro_batch = layout.stage >= 2 && shards > 1;
      const auto [same_order, is_first] = with_order.try_emplace(
          {data_ranks, layout.tensor_ranks, layout.sequence_parallel, shards, every_micro_batch},
          results);
      if (!is_first) CHECK(same_bits(results, same_order->second));
      if (!is_first) ++num_equal;
    }
    CHECK(num_equal >= 8);
    CHECK(with_order.size() >= 4);
  }

  TEST_CASE("two runs of a mesh have the same bits") {
    if (tiny_shapes()) return;
    const std::vector<LayoutCase> all = all_cases(211);
    for (std::size_t i = 0; i < all.size(); i += long_run() ? 1 : 10) {
      CAPTURE(all[i].text());
      LayoutOptions options = all[i].options;
      options.steps = 2;
      CHECK(same_bits(train_ranks<float>(all[i].layout, options),
                      train_ranks<float>(all[i].layout, options)));
    }
  }

  TEST_CASE("initial weights are those of one rank") {
    if (tiny_shapes()) return;
    const auto weights_with = [](const Layout& layout, const LayoutOptions& options, Ranks ranks) {
      RunShape shape{.B = 1, .T = kSequence, .zero_stage = layout.stage};
      shape.pipeline = layout.pipeline(options.layers);
      ModelRig<bf16> rig(options.config(), shape, std::move(ranks));
      rig.state().initialise(kSeed, rig.stream());
      return rig.weights();
    };
    for (Layout layout : pipeline_layouts()) {
      if (layout.ranks != 8 || layout.sequence_parallel) continue;
      CAPTURE(layout.text());
      layout.micro_batches = layout.pipeline_ranks;
      const LayoutOptions options{.heads = heads_for(layout.tensor_ranks),
                                  .layers = make_case(layout, 211, 0).options.layers};
      const NamedFloats one = weights_with({}, options, {});
      run_thread_ranks(layout.ranks, [&](World& world) {
        const NamedFloats own = weights_with(layout, options, Ranks(world, layout.mesh()));
        if (world.rank() == 0) CHECK(same_bits(own, one));
      });
    }
  }

  TEST_CASE("clipping at half of the true norm gives the weights of one rank") {
    if (tiny_shapes()) return;
    for (Layout layout : pipeline_layouts()) {
      if (!long_run() && (layout.ranks != 4 || layout.stage % 2 == 0 || layout.chunks > 1))
        continue;
      layout.micro_batches = 2 * layout.pipeline_ranks;
      check_clipping(layout);
    }
  }

  TEST_CASE("2 and 4 micro-batches of a global batch agree with one") {
    if (tiny_shapes()) return;
    for (const auto& [ranks, stage] : {std::pair(2, 0), std::pair(4, 1), std::pair(4, 3)}) {
      check_micro_batches({.ranks = ranks,
                           .stage = stage,
                           .shard_ranks = stage == 0 ? 1 : ranks / 2,
                           .pipeline_ranks = 2});
    }
  }

  TEST_CASE("a schedule of the user gives the bits of 1F1B") {
    if (tiny_shapes()) return;
    Layout layout{.ranks = 3, .micro_batches = 4, .pipeline_ranks = 3};
    const LayoutOptions options{.dropout = kDropout, .heads = 2, .layers = 3};
    const Results usual = train_ranks<float>(layout, options);
    for (int rank = 0; rank < 3; ++rank) {  // GPipe: all forward passes, then all backward passes
      std::vector<PipelinePass>& passes = layout.schedule.emplace_back();
      for (const PassKind kind : {PassKind::forward, PassKind::backward}) {
        for (int m = 0; m < 4; ++m) passes.push_back({rank, kind, m});
      }
    }
    CHECK(layout.pipeline(3).slots(2) == 4);
    CHECK(same_bits(train_ranks<float>(layout, options), usual));
    // Backward passes in the opposite order add gradients in another order.
    for (auto& passes : layout.schedule) std::ranges::reverse(passes.begin() + 4, passes.end());
    check_close(train_ranks<float>(layout, options), usual, 2e-6, 2e-6);
  }

  TEST_CASE_TEMPLATE("half precision trains like one rank within the rounding of its activations",
                     T, bf16, fp16) {
    if (tiny_shapes()) return;
    // A stage rounds its residual addition as the fused one does: pipeline ranks alone change
    // nothing but the sum of the two gradients of wte.
    const Layout layout{.ranks = 4, .micro_batches = 4, .pipeline_ranks = 2};
    const LayoutCase c = make_case(layout, 211, 1);
    const Results one = train_one_rank<T>(c.layout.batches(), c.options);
    const Layout alone{.ranks = 2, .micro_batches = c.layout.batches(), .pipeline_ranks = 2};
    const Results ranks = train_ranks<T>(alone, c.options);
    CHECK(ranks.losses[0] == one.losses[0]);
    CHECK(same_bits(ranks.gradients, one.gradients, "wte.weight"));
    CHECK(worst_difference(train_ranks<T>(layout, c.options).gradients, one.gradients) <= 2e-6);
  }

  TEST_CASE("under the race checker, pipeline ranks train two steps") {
    if (!tiny_shapes()) return;
    for (const int chunks : {1, 2}) {
      const Layout layout{.ranks = 2,
                          .micro_batches = 4,
                          .pipeline_ranks = 2,
                          .chunks = chunks,
                          .message_streams = chunks == 1 ? Channel::StreamChoice::by_backend
                                                         : Channel::StreamChoice::own};
      const LayoutOptions options{
          .vocabulary = 31, .steps = 2, .dropout = kDropout, .heads = 2, .layers = 2 * chunks};
      const Results one = train_one_rank<float>(layout.batches(), options);
      check_close(train_ranks<float>(layout, options), one, 2e-6, 2e-6);
    }
  }
}
