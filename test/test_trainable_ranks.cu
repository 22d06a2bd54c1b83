// Frozen parameters with several ranks: every layout trains like one rank, and neither reduces nor
// stores what frozen parameters do not have. Ranks are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/pretrained.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/step_traffic.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "llmc/train/watch/replica_check.h"
#include "test/adapter_shapes.h"
#include "test/layout_rig.h"
#include "test/plan_rig.h"
#include "test/rank_rig.h"
#include "test/write_file.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using Names = std::vector<std::string>;

template <class IsFrozen>
Names names_if(const ModelConfig& config, const IsFrozen& is_frozen) {
  Names names;
  const ParameterTable table = gpt2_parameters(config);
  for (const ParameterSpec& spec : table.specs()) {
    if (is_frozen(spec.name)) names.push_back(spec.name);
  }
  return names;
}

// Sets that leave buckets whole, without split or copied parameters, or empty.
std::vector<Names> frozen_sets(const ModelConfig& config) {
  const auto all_but = [&](const std::string& prefix) {
    return names_if(config, [&](const std::string& name) { return !name.starts_with(prefix); });
  };
  return {
      {"wte.weight"},
      {"wpe.weight"},
      {"wte.weight", "h.0.attn.c_attn.weight", "ln_f.bias"},
      names_if(config, [](const std::string& name) { return name.starts_with("h.0."); }),
      names_if(config, [](const std::string& name) { return name.ends_with(".bias"); }),
      all_but("h.1.ln_1."),
      all_but("wte."),
      all_but("h.0.mlp.c_fc.weight"),
  };
}

std::vector<Layout> layouts_with_frozen() {
  const Layout sharded{.ranks = 2, .shard_ranks = 2, .micro_batches = 2};
  std::vector<Layout> all = {{.ranks = 2, .micro_batches = 2}};
  for (const int stage : {1, 2, 3}) {
    all.push_back(sharded);
    all.back().stage = stage;
  }
  for (const bool sequence_parallel : {false, true}) {
    all.push_back({.ranks = 2,
                   .micro_batches = 2,
                   .tensor_ranks = 2,
                   .sequence_parallel = sequence_parallel});
    all.push_back({.ranks = 8,
                   .stage = sequence_parallel ? 3 : 2,
                   .shard_ranks = 2,
                   .micro_batches = 2,
                   .tensor_ranks = 2,
                   .sequence_parallel = sequence_parallel,
                   .pipeline_ranks = 2});
  }
  all.push_back({.ranks = 2, .micro_batches = 2, .pipeline_ranks = 2});
  for (const int stage : {1, 2, 3}) {
    all.push_back(
        {.ranks = 4, .stage = stage, .shard_ranks = 2, .micro_batches = 2, .pipeline_ranks = 2});
  }
  if (tiny_shapes()) all = {all[3], all[6], all[8]};
  return all;
}

LayoutOptions options_with(const Names& frozen, std::int64_t steps) {
  return {.vocabulary = 31, .steps = steps, .heads = 2, .layers = 2, .frozen = frozen};
}

RunConfig config_of(const Layout& layout) {
  RunConfig config = run_config(layout.mesh(), layout.stage, layout.micro_batches);
  config.shape.layers = 2;
  config.ranks.sequence_parallel = layout.sequence_parallel;
  config.pipeline = layout.pipeline(config.shape.layers);
  return config;
}

GroupTraffic pipeline_bytes(Ranks& ranks) {
  if (ranks.mesh().pipeline_ranks == 1) return {};
  GroupTraffic traffic = bytes_of(ranks.pipeline());
  if (ranks.embeddings() != nullptr) traffic += bytes_of(*ranks.embeddings());
  traffic.message = ranks.channels().bytes();
  return traffic;
}
GroupTraffic tensor_bytes(Ranks& ranks) {
  return ranks.mesh().tensor_ranks == 1 ? GroupTraffic() : bytes_of(ranks.tensor_group());
}

// Elements of a rank's whole bucket with the trainable or the frozen parameters of a block, counted
// from the parameters; 0 if it has none of them.
std::int64_t bucket_size(const ParameterTable& table, int block, bool trainable, int shards) {
  std::int64_t size = 0;
  bool is_held = false;
  for (const ParameterSpec& spec : table.specs()) {
    if (spec.block != block || spec.trainable != trainable) continue;
    size += round_up(spec.stored_size(), kParameterAlignment);
    is_held = is_held || spec.is_held;
  }
  return is_held ? shards * round_up(ceil_div(size, std::int64_t{shards}), kParameterAlignment) : 0;
}

// Elements of all blocks of a rank, of the larger one of the embeddings and the head of a
// classifier, which share a slot, and of the largest other block.
struct Elements {
  std::int64_t all = 0, embedding_or_head = 0, largest_layer = 0;
};
Elements elements_of(const ParameterTable& table, int shards, bool with_frozen) {
  Elements elements;
  for (int block = 0; block <= table.specs().back().block; ++block) {
    const std::int64_t size = bucket_size(table, block, true, shards) +
                              (with_frozen ? bucket_size(table, block, false, shards) : 0);
    elements.all += size;
    const bool is_end = block == 0 || block == table.head().block;
    std::int64_t& largest = is_end ? elements.embedding_or_head : elements.largest_layer;
    largest = std::max(largest, size);
  }
  return elements;
}

// Calls check(layout, config, frozen) with each layout and each set of frozen parameters, with
// adapters in the config, and with a classifier: all of it learns, its head alone, or adapters.
template <class Check>
void for_each_frozen_layout(const Check& check) {
  for (const Layout& layout : layouts_with_frozen()) {
    RunConfig config = config_of(layout);
    CAPTURE(layout.text());
    for (const Names& frozen : frozen_sets(config.shape)) {
      CAPTURE(frozen.size());
      check(layout, config, frozen);
    }
    for (const AdapterShape& adapters : adapter_shapes(config.shape)) {
      config.adapter.shape = adapters;
      CAPTURE(adapters.layers.size());
      check(layout, config, Names{});
    }
    config.shape.labels = 3;
    CAPTURE(config.shape.labels);
    check(layout, config, Names{});
    config.adapter.shape = {};
    check(layout, config, Names{});
    check(layout, config,
          names_if(config.shape, [](const std::string& name) { return name != kScoreName; }));
  }
}

// Samples for the model of a config.
SampleSource samples_of(const RunConfig& config) {
  const std::int64_t classes = config.shape.num_logits();
  return {[classes](std::int64_t first, std::int64_t B) {
    Batch batch = random_batch(first, B);
    for (std::int32_t& target : batch.targets) target = static_cast<std::int32_t>(target % classes);
    return batch;
  }};
}

}  // namespace

TEST_SUITE("trainable ranks") {
  TEST_CASE("with frozen parameters, every layout trains like one rank") {
    const std::vector<Names> sets = frozen_sets(options_with({}, 1).config());
    for (const Layout& layout : layouts_with_frozen()) {
      for (std::size_t i = 0; i < sets.size(); ++i) {
        if (tiny_shapes() && i != 2) continue;
        CAPTURE(layout.text());
        CAPTURE(i);
        const LayoutOptions options = options_with(sets[i], tiny_shapes() ? 1 : 3);
        const Results one = train_one_rank<float>(layout.batches(), options);
        const Results ranks = train_ranks<float>(layout, options);
        check_close(ranks, one, layout.tensor_ranks == 1 ? 5e-7 : 2e-6, 2e-6);
        for (const std::string& name : sets[i]) {
          CAPTURE(name);
          CHECK(llmc_test::same_bits(ranks.weights.at(name), one.weights.at(name)));
        }
      }
    }
  }

  TEST_CASE("with adapters, every layout trains like one rank, from the same values") {
    const ModelConfig config = options_with({}, 1).config();
    for (const Layout& layout : layouts_with_frozen()) {
      for (const AdapterShape& adapters : adapter_shapes(config)) {
        if (tiny_shapes() && adapters.dropout == 0) continue;
        CAPTURE(layout.text());
        CAPTURE(adapters.layers.size());
        LayoutOptions options = options_with({}, tiny_shapes() ? 1 : 3);
        options.adapters = adapters;
        const Results one = train_one_rank<float>(layout.batches(), options);
        const Results ranks = train_ranks<float>(layout, options);
        check_close(ranks, one, layout.tensor_ranks == 1 ? 5e-7 : 2e-6, 2e-6);
        for (const auto& [name, gradient] : one.gradients) {
          const bool is_frozen = name.find(".lora_") == name.npos && !name.ends_with(".ia3_l");
          CAPTURE(name);
          CHECK(is_frozen == std::ranges::all_of(gradient, [](float g) { return g == 0; }));
          if (is_frozen) CHECK(same_bits(ranks.weights.at(name), one.weights.at(name)));
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("with frozen parameters, all stages of ZeRO have the same bits", T, float,
                     bf16, fp16) {
    if (tiny_shapes()) return;
    for (const Names& frozen : frozen_sets(options_with({}, 1).config())) {
      LayoutOptions options = options_with(frozen, 3);
      options.stochastic_rounding = sizeof(T) == 2;
      options.grad_clip = 0.01;
      const Results expected = train_ranks<T>({.ranks = 2}, options);
      for (const int stage : {1, 2, 3}) {
        CAPTURE(stage);
        const Layout layout{.ranks = 2, .stage = stage, .shard_ranks = 2};
        CHECK(same_bits(train_ranks<T>(layout, options), expected));
      }
    }
  }

  TEST_CASE("quantized passes of ranks with frozen weights train like one rank") {
    if (tiny_shapes()) return;
    for (const Layout& layout :
         {Layout{.ranks = 2, .stage = 3, .shard_ranks = 2, .micro_batches = 2},
          Layout{.ranks = 2, .micro_batches = 1, .pipeline_ranks = 2}}) {
      CAPTURE(layout.text());
      LayoutOptions options =
          options_with({"wte.weight", "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.weight"}, 1);
      options.qat = QatMode::w8a8;
      options.zero_points = true;
      check_close(train_ranks<float>(layout, options),
                  train_one_rank<float>(layout.batches(), options), 5e-7, 2e-6);
    }
  }

  TEST_CASE("ranks with frozen parameters send the bytes of the formulae") {
    if (tiny_shapes()) return;
    for_each_frozen_layout([](const Layout& layout, const RunConfig& config, const Names& frozen) {
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<bf16> rank(world, config, frozen);
        Ranks& ranks = rank.engine.context().ranks;
        const StepTraffic expected =
            step_traffic(config.shape, frozen_shape(config, frozen), config.mesh(),
                         layout.micro_batches, sizeof(bf16), world.rank());
        train(rank, samples_of(config), 1);
        const GroupTraffic data = data_bytes(ranks), tensor = tensor_bytes(ranks);
        const GroupTraffic pipeline = pipeline_bytes(ranks);
        train(rank, samples_of(config), 1);
        const std::string what = "rank " + std::to_string(world.rank()) + ": ";
        CHECK(what + text_of(data_bytes(ranks) - data) == what + text_of(expected.data()));
        CHECK(what + text_of(tensor_bytes(ranks) - tensor) == what + text_of(expected.tensor()));
        CHECK(what + text_of(pipeline_bytes(ranks) - pipeline) ==
              what + text_of(expected.pipeline()));
      });
    });
  }

  TEST_CASE("only buckets with trainable parameters are reduced, and gathered after an update") {
    const Layout layout{.ranks = 2, .stage = 1, .shard_ranks = 2};
    const RunConfig config = config_of(layout);
    const Names frozen = names_if(
        config.shape, [](const std::string& name) { return !name.starts_with("h.1.ln_1."); });
    run_thread_ranks(layout.ranks, [&](World& world) {
      Rank<float> rank(world, config, frozen);
      Communicator& shard = rank.engine.context().ranks.shard();
      const auto reduced = shard.traffic(CommKind::reduce_scatter);
      const auto gathered = shard.traffic(CommKind::all_gather);
      train(rank, {random_batch}, 1);
      CHECK(shard.traffic(CommKind::reduce_scatter).calls - reduced.calls == 1);
      // The weights of the norm, and the partial sums of the gradient norm.
      CHECK(shard.traffic(CommKind::all_gather).calls - gathered.calls == 2);
      CHECK(shard.traffic(CommKind::reduce_scatter).bytes - reduced.bytes ==
            4 * kParameterAlignment);
      check_replicas(rank.state(), 1, 1.0, rank.exchange, rank.stream());
    });
  }

  TEST_CASE("ranks reserve memory for the buckets that they have, and for slots") {
    if (tiny_shapes()) return;
    for_each_frozen_layout([](const Layout& layout, const RunConfig& config, const Names& frozen) {
      for (int rank = 0; rank < layout.ranks; ++rank) {
        Context context({}, Ranks(config.mesh(), rank));
        const RunShape shape = frozen_shape(config, frozen);
        const ParameterTable table = gpt2_parameters(config.shape, context.tensor.place(), shape);
        const auto plan = planned_segments(Dtype::bf16, config.shape, shape, context);
        const int shards = layout.stage == 0 ? 1 : layout.shard_ranks;
        const Elements trainable = elements_of(table, shards, false);
        const Elements all = elements_of(table, shards, true);
        const auto divided = [&](std::int64_t size, int stage) {
          return layout.stage >= stage ? size / shards : size;
        };
        CHECK(segment_of(plan, "weights") == 2 * divided(all.all, 3));
        CHECK(segment_of(plan, "gradients") == 4 * divided(trainable.all, 2));
        CHECK(segment_of(plan, "master weights") == 4 * divided(trainable.all, 1));
        CHECK(segment_of(plan, "moments") == 8 * divided(trainable.all, 1));
        const std::int64_t sum =
            std::max(trainable.embedding_or_head, trainable.largest_layer) / shards;
        CHECK(segment_of(plan, "gradient buckets") ==
              (layout.stage < 2
                   ? 0
                   : 4 * (trainable.embedding_or_head + 2 * trainable.largest_layer + sum)));
        CHECK(segment_of(plan, "gathered weights") ==
              (layout.stage < 3 ? 0 : 2 * (all.embedding_or_head + 2 * all.largest_layer)));
      }
    });
  }

  TEST_CASE_TEMPLATE("a checkpoint has frozen parameters, whatever the layout", T, float, bf16) {
    if (tiny_shapes()) return;
    const TemporaryDirectory folder;
    const Names frozen = {"wte.weight", "h.0.attn.c_attn.weight", "h.1.ln_2.bias"};
    const Layout layout{.ranks = 8,
                        .stage = 3,
                        .shard_ranks = 2,
                        .micro_batches = 2,
                        .tensor_ranks = 2,
                        .pipeline_ranks = 2};
    std::vector<float> saved;
    run_thread_ranks(layout.ranks, [&](World& world) {
      Rank<T> rank(world, config_of(layout), frozen);
      train(rank, {random_batch}, 2);
      std::vector<float> kept = kept_values(rank.state(), rank.stream());
      save_checkpoint(folder.path(), to_huggingface(rank.config.shape, {}), {.step = 2}, 1,
                      rank.state(), rank.stream());
      if (world.rank() == 0) saved = std::move(kept);
    });
    run_thread_ranks(1, [&](World& world) {
      Rank<T> same(world, config_of({}), frozen);
      const auto checkpoint = folder.path() / checkpoint_name(2);
      load_checkpoint(checkpoint, 1, same.state(), same.stream());
      CHECK(same_bits(kept_values(same.state(), same.stream()), saved));
      const auto complaint_of = [&](const Names& other) {
        Rank<T> rank(world, config_of({}), other);
        return complaint([&] { load_checkpoint(checkpoint, 1, rank.state(), rank.stream()); });
      };
      CHECK(contains(complaint_of({"wte.weight", "h.0.attn.c_attn.weight"}),
                     "the run so far did not train h.1.ln_2.bias, which learns now"));
      Names more = frozen;
      more.push_back("ln_f.bias");
      CHECK(contains(complaint_of(more), "trained ln_f.bias, which is frozen now"));
    });
  }
}
