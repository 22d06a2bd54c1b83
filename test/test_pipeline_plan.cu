// Pipeline ranks: memory and traffic against the formulae of parallel/README.md. Ranks are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/config/model_name.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/plan/plan_text.h"
#include "llmc/plan/step_traffic.h"
#include "test/layouts.h"
#include "test/plan_rig.h"
#include "test/rank_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

RunConfig config_of(Layout layout, std::int64_t micro_batches) {
  layout.micro_batches = micro_batches;
  RunConfig config = run_config(layout.mesh(), layout.stage, micro_batches);
  config.shape.heads = layout.tensor_ranks % 3 == 0 ? 6 : 8;
  config.shape.channels = 8 * config.shape.heads;
  config.shape.layers = layout.pipeline_ranks * layout.chunks;
  if (layout.has_uneven_stages()) ++config.shape.layers;
  config.batch.batch_size = 3;    // 24 rows
  config.batch.logits_rows = 10;  // three chunks, the last one short
  config.ranks.sequence_parallel = layout.sequence_parallel;
  config.pipeline = layout.pipeline(config.shape.layers);
  return config;
}

// The bytes of the segment "activations" of a pipeline rank in bf16, as parallel/README.md states
// them: `layers` are those of its largest stage, `own` the rows of the residual stream.
std::int64_t activation_bytes(const ModelConfig& c, std::int64_t rows, std::int64_t own,
                              std::int64_t t, std::int64_t layers, std::int64_t slots,
                              std::int64_t sent_gradients, bool has_head) {
  constexpr std::int64_t kHalf = 2, kFloat = 4;
  const std::int64_t C = c.channels, stream = stored(kHalf * own * C);
  const std::int64_t layer = 4 * stream + stored(kHalf * rows * 3 * C / t) +
                             stored(kHalf * rows * C / t) + 2 * stored(kHalf * rows * 4 * C / t) +
                             4 * stored(kFloat * own) + stored(kFloat * rows * c.heads / t);
  const std::int64_t head = has_head ? stream + 2 * stored(kFloat * own) : 0;
  const std::int64_t output = stream, branch = stream;
  return slots * (layers * layer + output + head) + branch +
         stored(kHalf * sent_gradients * own * C);
}

// The slots of 1F1B and interleaved 1F1B, as pipeline/README.md states them.
std::int64_t slots_of(std::int64_t p, std::int64_t m, std::int64_t v, std::int64_t rank) {
  const std::int64_t first = v == 1 ? p - 1 - rank : (v - 1) * p + 2 * (p - 1 - rank);
  return std::min(first + 1, m * v);
}

GroupTraffic pipeline_bytes(Ranks& ranks) {
  GroupTraffic traffic = bytes_of(ranks.pipeline());
  if (ranks.embeddings() != nullptr) traffic += bytes_of(*ranks.embeddings());
  traffic.message = ranks.channels().bytes();
  return traffic;
}

}  // namespace

TEST_SUITE("pipeline plan") {
  TEST_CASE("activations of real models take the formula times the slots of the schedule") {
    for (const char* model : {"d12", "d48"}) {
      for (const int p : {2, 3, 4, 6}) {
        for (const int v : {1, 2}) {
          for (const int t : {1, 2, 5}) {
            const Layout layout{.ranks = p * t,
                                .micro_batches = 2 * p,
                                .tensor_ranks = t,
                                .pipeline_ranks = p,
                                .chunks = v};
            RunConfig config = run_config(layout.mesh(), 0, layout.micro_batches);
            config.precision.dtype = Dtype::bf16;
            config.shape = config_from_name(model);
            if (config.shape.heads % t != 0) continue;
            CAPTURE(model);
            CAPTURE(layout.text());
            config.pipeline = layout.pipeline(config.shape.layers);
            config.batch.batch_size = 4;
            config.batch.seq_len = 1024;
            config.ranks.sequence_parallel = t > 1;
            const auto plans = planned_memory(config);
            const std::int64_t rows = 4096, own = t > 1 ? ceil_div(rows, std::int64_t{t}) : rows;
            for (int rank = 0; rank < p * t; ++rank) {
              const int place = layout.mesh().pipeline_rank(rank);
              std::int64_t layers = 0;
              for (const Stage& stage : stages_of(config.pipeline, place, config.shape.layers)) {
                layers = std::max(layers, stage.blocks());
              }
              CHECK(segment_of(plans[static_cast<std::size_t>(rank)], "activations") ==
                    activation_bytes(
                        config.shape, rows, own, t, layers, slots_of(p, 2 * p, v, place),
                        place == 0 && v == 1 ? 0 : slots_of(p, 2 * p, v, (place + p - 1) % p),
                        place == p - 1));
            }
          }
        }
      }
    }
  }

  TEST_CASE("pipeline ranks hold their layers, and the first and the last one hold wte") {
    const ModelConfig model = config_from_name("d12");
    const Layout layout{.ranks = 4, .micro_batches = 4, .pipeline_ranks = 4};
    RunConfig config = run_config(layout.mesh(), 0, 4);
    config.precision.dtype = Dtype::bf16;
    config.shape = model;
    config.pipeline = layout.pipeline(model.layers);
    const auto plans = planned_memory(config);
    const ParameterTable table = gpt2_parameters(model);
    std::int64_t layer = 0, embeddings = 0, final = 0;
    for (const ParameterSpec& spec : table.specs()) {
      const std::int64_t size = round_up(spec.stored_size(), kParameterAlignment);
      if (spec.block == kEmbeddingBlock) embeddings += size;
      if (spec.block == layer_block(0)) layer += size;
      if (spec.block == layer_block(model.layers)) final += size;
    }
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      std::int64_t parameters = 3 * layer + (rank == 0 || rank == 3 ? embeddings : 0);
      if (rank == 3) parameters += final;
      const auto& plan = plans[static_cast<std::size_t>(rank)];
      CHECK(segment_of(plan, "weights") == 2 * parameters);
      CHECK(segment_of(plan, "gradients") == 4 * parameters);
      CHECK(segment_of(plan, "moments") == 8 * parameters);
    }
  }

  TEST_CASE("real ranks reserve the memory of the plan") {
    if (tiny_shapes()) return;
    for (const Layout& layout : pipeline_layouts()) {
      if (layout.ranks > 4) continue;
      CAPTURE(layout.text());
      RunConfig config = config_of(layout, 2 * layout.pipeline_ranks);
      config.precision.dtype = Dtype::bf16;
      if (layout.stage == 3) config.qat.mode = QatMode::w8a8;
      config.memory.recompute = static_cast<Recompute>(layout.stage % 3);
      const auto planned = planned_memory(config);
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<bf16> rank(world, config);
        CHECK(rank.engine.memory().segments() == planned[static_cast<std::size_t>(world.rank())]);
      });
    }
  }

  TEST_CASE("ranks send the bytes of the formulae, per dimension and collective") {
    if (tiny_shapes()) return;
    int number = 0;
    for (const Layout& layout : pipeline_layouts()) {
      const bool is_long = std::getenv("LLMC_LONG") != nullptr;
      if (!is_long && layout.ranks == 8 && layout.has_uneven_stages()) continue;
      const std::int64_t micro_batches = layout.pipeline_ranks * (layout.stage % 2 == 0 ? 2 : 1);
      CAPTURE(layout.text());
      RunConfig config = config_of(layout, micro_batches);
      if (layout.stage == 1) config.qat.mode = QatMode::w8a8;
      config.memory.recompute = static_cast<Recompute>(number++ % 3);
      config.memory.recompute_blocks = number % 2;
      config.shape.tied_head = layout.ranks % 4 != 0;
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<bf16> rank(world, config);
        Ranks& ranks = rank.engine.context().ranks;
        const StepTraffic expected = step_traffic(config.shape, config.run_shape(), config.mesh(),
                                                  micro_batches, sizeof(bf16), world.rank());
        train(rank, {random_batch}, 1);
        const GroupTraffic data = data_bytes(ranks), pipeline = pipeline_bytes(ranks);
        const GroupTraffic tensor =
            layout.tensor_ranks > 1 ? bytes_of(ranks.tensor_group()) : GroupTraffic();
        train(rank, {random_batch}, 1);
        const std::string what = "rank " + std::to_string(world.rank()) + ": ";
        CHECK(what + text_of(data_bytes(ranks) - data) == what + text_of(expected.data()));
        CHECK(what + text_of(pipeline_bytes(ranks) - pipeline) ==
              what + text_of(expected.pipeline()));
        if (layout.tensor_ranks > 1) {
          CHECK(what + text_of(bytes_of(ranks.tensor_group()) - tensor) ==
                what + text_of(expected.tensor()));
        }
      });
    }
  }

  TEST_CASE("a message is one residual stream per micro-batch, direction and stage boundary") {
    const ModelConfig model = config_from_name("d12");
    for (const bool sequence_parallel : {false, true}) {
      const Layout layout{.ranks = 8,
                          .micro_batches = 8,
                          .tensor_ranks = 2,
                          .sequence_parallel = sequence_parallel,
                          .pipeline_ranks = 4};
      RunShape shape{.B = 4, .T = 1024};
      shape.sequence_parallel = sequence_parallel;
      shape.pipeline = layout.pipeline(model.layers);
      std::int64_t sent = 0;
      for (int rank = 0; rank < 8; ++rank) {
        sent += step_traffic(model, shape, layout.mesh(), 8, sizeof(bf16), rank).messages.all();
      }
      // Without sequence parallelism, each tensor rank sends all of it.
      const std::int64_t copies = sequence_parallel ? 1 : 2;
      CHECK(sent == copies * 2 * 3 * 8 * 4096 * model.channels * 2);
    }
  }
}
