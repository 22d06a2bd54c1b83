// Tensor ranks, pipeline ranks and the state of a run: initial weights, checkpoints under other
// layouts, evaluation, copies, memory and traffic. Ranks are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/step_numbers.h"
#include "llmc/comm/thread_ranks.h"
#include "llmc/models/load_weights.h"
#include "llmc/plan/plan_text.h"
#include "llmc/train/watch/replica_check.h"
#include "test/rank_rig.h"
#include "test/state_rig.h"
#include "test/write_file.h"

using namespace llmc;
using namespace llmc_test;

namespace {

const std::vector<Layout>& state_layouts() {
  static const std::vector<Layout> all = {layout_of(1, 1),
                                          layout_of(2, 2),
                                          layout_of(2, 2, 0, 1, true),
                                          layout_of(4, 2, 1, 2),
                                          layout_of(4, 4, 0, 1, true),
                                          layout_of(4, 2, 3, 2),
                                          layout_of(8, 4, 2, 2, true),
                                          layout_of(8, 8),
                                          layout_of(8, 8, 0, 1, true),
                                          layout_of(8, 2, 3, 4, true),
                                          layout_of(8, 2, 1, 2),
                                          layout_of(4, 1, 3, 4),
                                          with_pipeline(layout_of(2, 1), 2),
                                          with_pipeline(layout_of(4, 1, 3, 2), 2, 2),
                                          with_pipeline(layout_of(4, 2, 0, 1, true), 2),
                                          with_pipeline(layout_of(8, 1), 8),
                                          with_pipeline(layout_of(8, 2, 1, 2, true), 2, 4),
                                          with_pipeline(layout_of(8, 2), 4, 2),
                                          with_pipeline(layout_of(8, 1, 2, 2), 2)};
  return all;
}

// Checks that a new state on which each rank has called fill(rank) has the same bits under every
// layout.
template <class T, class Fill>
void check_equal_states(std::int64_t vocabulary, const Fill& fill) {
  std::vector<float> one;
  for (const Layout& layout : state_layouts()) {
    CAPTURE(layout.text());
    on_ranks<T>(layout, vocabulary, [&](Rank<T>& rank) {
      fill(rank);
      const std::vector<float> kept = kept_values(rank.state(), rank.stream());
      if (!rank.exchange.first()) return;
      if (one.empty()) one = kept;
      CHECK(same_bits(kept, one));
    });
  }
}

}  // namespace

TEST_SUITE("tensor state") {
  TEST_CASE_TEMPLATE("initial weights of every layout are bitwise those of one rank", T, float,
                     bf16) {
    if (tiny_shapes()) return;
    for (const std::int64_t vocabulary : {17, 300}) {
      check_equal_states<T>(vocabulary, [](Rank<T>&) {});
    }
  }

  TEST_CASE("stochastically rounded weights of the same masters have the bits of one rank") {
    if (tiny_shapes()) return;
    std::map<std::string, std::vector<std::uint16_t>> one;
    for (const Layout& layout : state_layouts()) {
      CAPTURE(layout.text());
      on_ranks<bf16>(layout, kVocabulary, [&](Rank<bf16>& rank) {
        TrainingState<bf16>& state = rank.state();
        state.enable_stochastic_rounding(7);
        OptimizerState optimizer = state.initial_optimizer_state(1);
        optimizer.updates = 3;
        state.set_optimizer_state(optimizer, rank.stream());
        state.restore_rounding(rank.stream());
        state.visit_kept([&](const char* kind, const ParameterSpec& spec,
                             const RunState::ReadValues& read, bool) {
          if (std::string(kind) != "weights" || state.layout().shards_weights()) return;
          std::vector<bf16> host;
          std::int64_t count = 0;
          read([&](std::span<const std::byte> values) {
            host.resize(values.size() / sizeof(bf16));
            count = std::ssize(host);
            copy_to_host(host.data(), reinterpret_cast<const bf16*>(values.data()), count,
                         rank.stream());
            rank.stream().synchronize();
          });
          static std::mutex mutex;
          const std::lock_guard lock(mutex);
          auto& whole = one[spec.name];
          if (layout.ranks == 1) whole.resize(host.size());
          bool equal = true;
          for (std::int64_t i = 0; i < count; ++i) {
            auto& expected = whole.at(static_cast<std::size_t>(spec.part.index(i)));
            if (layout.ranks == 1) expected = host[i].bits;
            equal = equal && expected == host[i].bits;
          }
          CHECK_MESSAGE(equal, spec.name);
        });
      });
    }
  }

  TEST_CASE("a state saved under any layout has the same bytes under any other") {
    if (tiny_shapes()) return;
    const bool all = std::getenv("LLMC_LONG") != nullptr;
    std::mt19937 random(16);
    const auto any = [&] { return state_layouts()[random() % state_layouts().size()]; };
    for (int i = 0; i < (all ? 20 : 3); ++i) {
      const Layout a = any(), b = any();
      reshard(a, b, kVocabulary);
    }
    const Layout one{}, two = layout_of(2, 2, 0, 1, true), four = layout_of(4, 4);
    const Layout eight = layout_of(8, 8, 0, 1, true);
    const Layout pipeline = with_pipeline(layout_of(8, 1), 8);
    const Layout two_by_four = with_pipeline(layout_of(8, 2), 4);
    const Layout four_by_two = with_pipeline(layout_of(8, 4), 2);
    for (const std::int64_t vocabulary : {17, 127, 128, 31123}) {
      if (!all && vocabulary != 17 && vocabulary != 127) continue;
      reshard(one, eight, vocabulary);
      reshard(eight, one, vocabulary);
      reshard(two, four, vocabulary);
      if (!all && vocabulary != 17) continue;
      reshard(two_by_four, four_by_two, vocabulary);
      reshard(pipeline, eight, vocabulary);
      reshard(one, pipeline, vocabulary);
      reshard(one, two_by_four, vocabulary);
    }
  }

  TEST_CASE_TEMPLATE("weights of files have the same bits under every layout", T, float, bf16) {
    if (tiny_shapes()) return;
    const TemporaryDirectory folder;
    run_under<float>({}, kVocabulary, 1, {}, folder.path());
    const auto saved = folder.path() / checkpoint_name(1);
    check_equal_states<T>(kVocabulary,
                          [&](Rank<T>& rank) { load_weights(saved, rank.state(), rank.stream()); });
  }

  TEST_CASE("losses and logits of evaluations are those of one rank, for any number of rows") {
    if (tiny_shapes()) return;
    for (const std::int64_t vocabulary : {17, 300}) {
      std::map<std::int64_t, std::vector<float>> losses, logits;
      for (const Layout& layout : state_layouts()) {
        CAPTURE(layout.text());
        on_ranks<float>(layout, vocabulary, [&](Rank<float>& rank) {
          ModelRunner<float>& runner = rank.engine.runner();
          for (const std::int64_t T : {1, 3, 8}) {  // one row; rows that no number of ranks divides
            CAPTURE(T);
            Batch batch = batch_below(5, 1, vocabulary);
            batch.T = T;
            batch.inputs.resize(static_cast<std::size_t>(T));
            batch.targets.resize(static_cast<std::size_t>(T));
            const DeviceBatch staged = runner.put({.batch = batch});
            runner.forward(staged);
            std::vector<float> own_losses, own_logits;
            runner.read_losses(staged, own_losses);
            for (const std::int64_t row : {std::int64_t{0}, T - 1}) {
              std::vector<float> of_row;
              runner.read_logits(row, of_row);
              CHECK(std::ssize(of_row) == vocabulary);
              own_logits.insert(own_logits.end(), of_row.begin(), of_row.end());
            }
            if (layout.ranks == 1) losses[T] = own_losses, logits[T] = own_logits;
            CHECK(relative_l2(own_losses, losses[T]) <= 1e-6);
            CHECK(relative_l2(own_logits, logits[T]) <= 1e-6);
          }
        });
      }
    }
  }

  TEST_CASE("ranks with the same samples that read different tokens end the run") {
    if (tiny_shapes()) return;
    const std::string error = complaint([] {
      on_ranks<float>(layout_of(4, 2), kVocabulary, [](Rank<float>& rank) {
        const Mesh& mesh = rank.engine.context().ranks.mesh();
        const auto numbers_of = [&](std::uint64_t hash) {
          return RankNumbers(rank.exchange, {.token_hash = hash}, mesh).token_hash();
        };
        const int number = rank.exchange.rank();
        CHECK(numbers_of(number < 2 ? 10 : 20) == 30);
        numbers_of(number == 3 ? 21 : 20);
      });
    });
    const std::string text = ", which train on the same samples, have read different tokens";
    CHECK(contains(error, "ranks 2 and 3" + text));
    const std::string in_pipeline = complaint([] {
      on_ranks<float>(with_pipeline(layout_of(4, 1), 2), kVocabulary, [](Rank<float>& rank) {
        const Mesh& mesh = rank.engine.context().ranks.mesh();
        const int number = rank.exchange.rank();
        const auto numbers_of = [&](std::uint64_t hash) {
          return RankNumbers(rank.exchange, {.token_hash = hash}, mesh).token_hash();
        };
        CHECK(numbers_of(number % 2 == 0 ? 10 : 20) == 30);
        numbers_of(number == 3 ? 21 : 20);
      });
    });
    CHECK(contains(in_pipeline, "ranks 1 and 3" + text));
  }

  TEST_CASE("all ranks skip an update that overflows on any of them, and lower the loss scale") {
    if (tiny_shapes()) return;
    for (const Layout& layout : state_layouts()) {
      CAPTURE(layout.text());
      on_ranks<fp16>(layout, kVocabulary, [&](Rank<fp16>& rank) {
        TrainingState<fp16>& state = rank.state();
        // A hidden unit of the last tensor rank whose gradient overflows with the largest scale.
        const ParameterSpec& fc = state.table().find("h.1.mlp.c_proj.weight");
        std::vector<float> values(static_cast<std::size_t>(fc.size()), 0.0f);
        values.back() = 100;
        state.set_weight(fc, values.data(), rank.stream());
        state.set_optimizer_state(state.initial_optimizer_state(kMaxLossScale), rank.stream());
        const std::vector<StepResult> results = train(rank, {random_batch}, 1);
        const OptimizerState& optimizer = results[0].optimizer;
        for (const std::int64_t number :
             {static_cast<std::int64_t>(optimizer.finite),
              static_cast<std::int64_t>(optimizer.updates),
              static_cast<std::int64_t>(optimizer.skipped_updates) - 1,
              static_cast<std::int64_t>(optimizer.loss_scale - kMaxLossScale / 2)}) {
          std::vector<std::int64_t> sum = {number};
          rank.exchange.sum(sum);
          CHECK(number == 0);
          CHECK(sum[0] == 0);
        }
      });
    }
  }

  TEST_CASE("copies of tensor ranks that differ end the run with the ranks and the tensor") {
    if (tiny_shapes()) return;
    struct Fault {
      Layout layout;
      int rank;
      std::string parameter, text;
    };
    for (const Fault& fault :
         {Fault{layout_of(4, 4), 2, "h.1.ln_2.weight",
                "rank 2 differs from the majority, ranks 0, 1, 3, in the weights of h.1.ln_2"},
          Fault{layout_of(4, 2, 1, 2, true), 3, "h.0.mlp.c_fc.weight",
                "rank 1 and rank 3 differ in the weights of h.0.mlp.c_fc.weight"},
          Fault{layout_of(4, 2, 3, 2), 3, "wpe.weight",
                "rank 2 and rank 3 differ in the weights of wpe"},
          // The embedding and the head have wte; a layer is on one pipeline rank.
          Fault{with_pipeline(layout_of(4, 2), 2), 3, "wte.weight",
                "rank 1 and rank 3 differ in the weights of wte"},
          Fault{with_pipeline(layout_of(8, 1, 2, 2), 2), 7, "h.7.ln_1.weight",
                "rank 7 differs from the majority, ranks 4 to 6, in the weights of h.7.ln_1"}}) {
      CAPTURE(fault.text);
      const std::string error = complaint([&] {
        on_ranks<float>(fault.layout, kVocabulary, [&](Rank<float>& rank) {
          train(rank, {random_batch}, 1);
          check_replicas(rank.state(), 1, 1.0, rank.exchange, rank.stream());
          const ParameterSpec& spec = rank.state().table().find(fault.parameter);
          const auto other = random_floats(spec.size(), 9, 0.1);
          if (rank.exchange.rank() == fault.rank) {
            rank.state().set_weight(spec, other.data(), rank.stream());
          }
          check_replicas(rank.state(), 7, 1.0, rank.exchange, rank.stream());
        });
      });
      CHECK(contains(error, "after step 7, " + fault.text));
    }
  }
}
