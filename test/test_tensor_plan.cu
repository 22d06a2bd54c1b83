// Tensor ranks: memory and traffic against the formulae of parallel/README.md. Ranks are threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/config/model_name.h"
#include "llmc/plan/plan_text.h"
#include "llmc/plan/step_traffic.h"
#include "test/layouts.h"
#include "test/plan_rig.h"
#include "test/rank_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

RunConfig config_of(const Layout& layout, std::int64_t micro_batches) {
  RunConfig config = run_config(layout.mesh(), layout.stage, micro_batches);
  config.shape.heads = layout.tensor_ranks % 3 == 0 ? 6 : 8;
  config.shape.channels = 8 * config.shape.heads;
  config.shape.layers = 2;
  config.batch.batch_size = 3;    // 24 rows
  config.batch.logits_rows = 10;  // three chunks, the last one short
  config.ranks.sequence_parallel = layout.sequence_parallel;
  return config;
}

// The bytes of a layer in a mode of --recompute, and of the buffers of all layers.
struct RecomputeBytes {
  std::int64_t layer, buffers;
};
RecomputeBytes recompute_bytes(const ModelConfig& c, std::int64_t rows, std::int64_t t,
                               bool sequence_parallel, Recompute mode) {
  const std::int64_t own = sequence_parallel ? ceil_div(rows, t) : rows, C = c.channels;
  constexpr std::int64_t kHalf = 2, kFloat = 4;
  const std::int64_t stream = stored(kHalf * own * C), hidden = stored(kHalf * rows * 4 * C / t);
  const std::int64_t outputs = 2 * stream + hidden;
  const std::int64_t inner = stream + stored(kHalf * rows * 3 * C / t) +
                             stored(kHalf * rows * C / t) + hidden + 4 * stored(kFloat * own) +
                             stored(kFloat * rows * c.heads / t);
  if (mode == Recompute::none) return {stream + inner + outputs, 0};
  if (mode == Recompute::selective) return {stream + inner, outputs};
  if (t == 1 || sequence_parallel) return {stream, inner + outputs};
  const std::int64_t piece = ceil_div(rows, t);
  return {stored(kHalf * piece * C), stored(kHalf * t * piece * C) + inner + outputs};
}

// The bytes of the segment "activations" that parallel/README.md states: of one layer, and of all.
struct ActivationBytes {
  std::int64_t layer, all;
};
ActivationBytes activation_bytes(const ModelConfig& c, std::int64_t rows, std::int64_t t,
                                 bool sequence_parallel) {
  const std::int64_t own = sequence_parallel ? ceil_div(rows, t) : rows;
  constexpr std::int64_t kHalf = 2, kFloat = 4;
  const std::int64_t layer = recompute_bytes(c, rows, t, sequence_parallel, Recompute::none).layer;
  const std::int64_t rest = 3 * stored(kHalf * own * c.channels) + 2 * stored(kFloat * own);
  return {layer, c.layers * layer + rest};
}

}  // namespace

TEST_SUITE("tensor plan") {
  TEST_CASE("recomputed activations take 20 and 2 bytes on one rank, and divide by tensor ranks") {
    for (const char* model : {"d12", "d48"}) {
      for (const std::int64_t t : {1, 2, 3, 4, 5, 6, 12, 25}) {
        RunConfig config = run_config(make_mesh(static_cast<int>(t), 1, static_cast<int>(t)), 0, 1);
        config.precision.dtype = Dtype::bf16;
        config.shape = config_from_name(model);
        if (config.shape.heads % t != 0) continue;
        config.batch.batch_size = 4;
        config.batch.seq_len = 1023;
        const std::int64_t rows = 4092, L = config.shape.layers;
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && t == 1) continue;
          for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
            for (const std::int64_t blocks : {std::int64_t{0}, std::int64_t{5}}) {
              CAPTURE(model);
              CAPTURE(t);
              CAPTURE(sequence_parallel);
              CAPTURE(choice_name(mode));
              CAPTURE(blocks);
              config.ranks.sequence_parallel = sequence_parallel;
              config.memory.recompute = mode;
              config.memory.recompute_blocks = blocks;
              const auto bytes = recompute_bytes(config.shape, rows, t, sequence_parallel, mode);
              const ActivationBytes kept =
                  activation_bytes(config.shape, rows, t, sequence_parallel);
              const std::int64_t n = blocks == 0 ? L : blocks;
              for (const auto& plan : planned_memory(config)) {
                CHECK(segment_of(plan, "activations") == kept.all - n * (kept.layer - bytes.layer));
                CHECK(segment_of(plan, "recompute buffers") == bytes.buffers);
              }
              const double per_element = static_cast<double>(bytes.layer) /
                                         static_cast<double>(rows * config.shape.channels);
              const auto ranks = static_cast<double>(t);
              const double leading = mode == Recompute::full ? 2 / ranks
                                     : mode == Recompute::none
                                         ? (sequence_parallel ? 32 / ranks : 8 + 24 / ranks)
                                         : (sequence_parallel ? 20 / ranks : 4 + 16 / ranks);
              CHECK(per_element >= leading);
              CHECK(per_element <= leading * 1.01 + 0.1);  // statistics in fp32
            }
          }
        }
      }
    }
  }

  TEST_CASE("activations take 32, 8 + 24/t or 32/t bytes per row, channel and layer") {
    for (const char* model : {"d12", "d48"}) {
      for (const std::int64_t t : {1, 2, 3, 4, 5, 6, 12, 25}) {
        RunConfig config = run_config(make_mesh(static_cast<int>(t), 1, static_cast<int>(t)), 0, 1);
        config.precision.dtype = Dtype::bf16;
        config.shape = config_from_name(model);
        if (config.shape.heads % t != 0) continue;
        config.batch.batch_size = 4;
        config.batch.seq_len = 1024;
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && t == 1) continue;
          CAPTURE(model);
          CAPTURE(t);
          CAPTURE(sequence_parallel);
          config.ranks.sequence_parallel = sequence_parallel;
          const std::int64_t rows = 4096;
          const ActivationBytes expected =
              activation_bytes(config.shape, rows, t, sequence_parallel);
          const auto plans = planned_memory(config);
          for (const auto& plan : plans) CHECK(segment_of(plan, "activations") == expected.all);
          const double per_element = static_cast<double>(expected.layer) /
                                     static_cast<double>(rows * config.shape.channels);
          const auto n = static_cast<double>(t);
          const double leading = sequence_parallel ? 32 / n : 8 + 24 / n;
          CHECK(per_element >= leading);
          CHECK(per_element <= leading * 1.01 + 0.1);  // statistics in fp32
        }
      }
    }
  }

  TEST_CASE("real ranks reserve the memory of the plan") {
    if (tiny_shapes()) return;
    for (const Layout& layout : tensor_layouts()) {
      if (layout.ranks > 4) continue;
      CAPTURE(layout.text());
      RunConfig config = config_of(layout, 2);
      config.precision.dtype = Dtype::bf16;
      if (layout.stage == 3) config.qat.mode = QatMode::w8a8;
      config.memory.recompute = static_cast<Recompute>(layout.stage % 3);
      const auto planned = planned_memory(config);
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<bf16> rank(world, config);
        const auto& plan = planned[static_cast<std::size_t>(world.rank())];
        const auto& segments = rank.engine.memory().segments();
        REQUIRE(segments.size() == plan.size());
        for (std::size_t i = 0; i < plan.size(); ++i) {
          CHECK(segments[i].name == plan[i].name);
          CHECK(segments[i].bytes == plan[i].bytes);
        }
        if (config.memory.recompute != Recompute::none) return;
        CHECK(
            segment_of(segments, "activations") ==
            activation_bytes(config.shape, 24, layout.tensor_ranks, layout.sequence_parallel).all);
      });
    }
  }

  TEST_CASE("ranks send the bytes of the formulae, per dimension and collective") {
    if (tiny_shapes()) return;
    int number = 0;
    for (const Layout& layout : tensor_layouts()) {
      for (const std::int64_t micro_batches : {1, 3}) {
        CAPTURE(layout.text());
        CAPTURE(micro_batches);
        RunConfig config = config_of(layout, micro_batches);
        if (micro_batches == 3) config.qat.mode = layout.stage == 0 ? QatMode::w8 : QatMode::w8a8;
        config.shape.tied_head = micro_batches == 1;
        if (micro_batches == 1) config.shape.inner = 32 * config.shape.heads;
        config.memory.recompute = static_cast<Recompute>(number++ % 3);
        config.memory.recompute_blocks = number % 2;
        const StepTraffic expected = step_traffic(config.shape, config.run_shape(), config.mesh(),
                                                  micro_batches, sizeof(bf16));
        run_thread_ranks(layout.ranks, [&](World& world) {
          Rank<bf16> rank(world, config);
          Ranks& ranks = rank.engine.context().ranks;
          train(rank, {random_batch}, 1);
          const GroupTraffic tensor = bytes_of(ranks.tensor_group()), data = data_bytes(ranks);
          train(rank, {random_batch}, 2);
          const std::string what = layout.text() + ": ";
          CHECK(what + text_of(bytes_of(ranks.tensor_group()) - tensor) ==
                what + text_of(expected.tensor() * 2));
          CHECK(what + text_of(data_bytes(ranks) - data) == what + text_of(expected.data() * 2));
        });
      }
    }
  }

  TEST_CASE("evaluations and samples send the bytes of the formulae") {
    if (tiny_shapes()) return;
    for (const Layout& layout : tensor_layouts()) {
      if (layout.stage != 0) continue;
      CAPTURE(layout.text());
      const RunConfig config = config_of(layout, 1);
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<float> rank(world, config);
        ModelRunner<float>& runner = rank.engine.runner();
        Ranks& ranks = rank.engine.context().ranks;
        for (const std::int64_t B : {1, 3}) {
          const TensorTraffic passes(config.shape, config.run_shape(), B * kT, layout.tensor_ranks,
                                     sizeof(float));
          GroupTraffic before = bytes_of(ranks.tensor_group());
          const auto sent = [&] {
            const GroupTraffic now = bytes_of(ranks.tensor_group());
            return now - std::exchange(before, now);
          };
          const DeviceBatch batch = runner.put({.batch = random_batch(0, B)});
          runner.forward(batch);
          CHECK(text_of(sent()) == text_of(passes.forward()));
          std::vector<float> values;
          runner.read_losses(batch, values);
          CHECK(text_of(sent()) == text_of(passes.losses()));
          runner.read_logits(B * kT - 1, values);
          const std::int64_t columns = rank.engine.table().find("wte.weight").part.stored_rows;
          CHECK(text_of(sent()) == text_of(passes.row_logits(columns)));
        }
      });
    }
  }

  TEST_CASE("tensor ranks send 8 or 10 elements per row and channel of a layer") {
    const ModelConfig model = config_from_name("d12");
    const RunShape whole{.B = 4, .T = 1024};
    RunShape spread = whole;
    spread.sequence_parallel = true;
    ModelConfig deeper = model;
    deeper.layers += 1;
    for (const int t : {2, 3, 4, 6, 12}) {
      const auto per_layer = [&](const RunShape& run) {
        const auto sent = [&](const ModelConfig& config) {
          const TensorTraffic passes(config, run, run.rows(), t, 2);
          return (passes.forward() + passes.backward()).all();
        };
        return static_cast<double>(sent(deeper) - sent(model)) / 2;
      };
      const double bsh = 4096.0 * 768 * (t - 1) / t;
      CHECK(per_layer(whole) == doctest::Approx(8 * bsh).epsilon(1e-6));
      // Padding adds at most t - 1 rows.
      CHECK(per_layer(spread) == doctest::Approx(10 * bsh).epsilon(1e-6 + (t - 1) / 4096.0));
    }
  }
}
