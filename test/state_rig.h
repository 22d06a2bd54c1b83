// Runs under layouts of ranks that save their state and continue under other layouts. Ranks are
// threads.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/comm/thread_ranks.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/layouts.h"
#include "test/rank_rig.h"
#include "test/write_file.h"

namespace llmc_test {

using namespace llmc;

// A run of 8 heads and 8 layers, which 2, 4 and 8 ranks can divide, with 8 samples per step.
inline RunConfig state_config(Layout layout, std::int64_t vocabulary = kVocabulary) {
  layout.micro_batches = 8 / layout.mesh().data_ranks();
  RunConfig config = run_config(layout.mesh(), layout.stage, 8 / layout.mesh().data_ranks());
  config.shape.vocabulary = vocabulary;
  config.shape.heads = 8;
  config.shape.channels = 64;
  config.shape.layers = 8;
  config.schedule.peak = 1e-3;
  config.ranks.sequence_parallel = layout.sequence_parallel;
  config.pipeline = layout.pipeline(config.shape.layers);
  return config;
}

inline Layout layout_of(int ranks, int tensor_ranks, int stage = 0, int shard_ranks = 1,
                        bool sequence_parallel = false) {
  return {.ranks = ranks,
          .stage = stage,
          .shard_ranks = shard_ranks,
          .tensor_ranks = tensor_ranks,
          .sequence_parallel = sequence_parallel};
}

// A layout with pipeline ranks.
inline Layout with_pipeline(Layout layout, int pipeline_ranks, int chunks = 1) {
  layout.pipeline_ranks = pipeline_ranks;
  layout.chunks = chunks;
  return layout;
}

inline Batch batch_below(std::int64_t first, std::int64_t B, std::int64_t vocabulary) {
  Batch batch = random_batch(first, B);
  for (auto* ids : {&batch.inputs, &batch.targets}) {
    for (std::int32_t& id : *ids) {
      // Any token of a large vocabulary, the last one included.
      id = static_cast<std::int32_t>((id * 1009 + vocabulary - 1) % vocabulary);
    }
  }
  return batch;
}

inline SampleSource samples_below(std::int64_t vocabulary) {
  return {[vocabulary](std::int64_t first, std::int64_t B) {
    return batch_below(first, B, vocabulary);
  }};
}

// Calls use(rank) on each rank of the layout.
template <class T, class Use>
void on_ranks(const Layout& layout, std::int64_t vocabulary, const Use& use) {
  run_thread_ranks(layout.ranks, [&](World& world) {
    Rank<T> rank(world, state_config(layout, vocabulary));
    use(rank);
  });
}

// The state and the losses of a run under a layout, as rank 0 reads them.
struct Run {
  std::vector<float> kept;
  std::vector<double> losses;
  std::uint64_t tokens = 0;  // sum of the hashes of all ranks in all steps
};

// Trains `steps` steps from a checkpoint, or from initial weights if `from` is empty, and saves
// into `to` unless that is empty.
template <class T>
Run run_under(const Layout& layout, std::int64_t vocabulary, int steps,
              const std::filesystem::path& from, const std::filesystem::path& to,
              const std::string& what = {}) {
  CAPTURE(what);
  Run run;
  const HuggingFaceConfig config = to_huggingface(state_config(layout, vocabulary).shape, {});
  on_ranks<T>(layout, vocabulary, [&](Rank<T>& rank) {
    RunPosition position;
    if (!from.empty()) position = load_checkpoint(from, 1, rank.state(), rank.stream());
    Run own;
    std::vector<std::int64_t> hash = {0};
    for (const StepResult& step : train(rank, samples_below(vocabulary), steps, position)) {
      own.losses.push_back(step.loss);
      if (rank.engine.context().ranks.first_of_data_rank()) {
        hash[0] += static_cast<std::int64_t>(step.token_hash);
      }
    }
    rank.exchange.sum(hash);
    position.step += steps;
    position.samples += steps * rank.config.global_batch();
    own.kept = kept_values(rank.state(), rank.stream());
    own.tokens = static_cast<std::uint64_t>(hash[0]);
    if (!to.empty()) save_checkpoint(to, config, position, 1, rank.state(), rank.stream());
    if (rank.exchange.first()) run = std::move(own);
  });
  return run;
}

inline bool same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  for (const char* name : {kWeightsName, kMomentsName}) {
    if (read_file(a / name) != read_file(b / name)) return false;
  }
  return true;
}

// Trains under A, saves, loads under B, saves again; then continues under B and under one rank.
inline void reshard(const Layout& a, const Layout& b, std::int64_t vocabulary) {
  CAPTURE(a.text());
  CAPTURE(b.text());
  CAPTURE(vocabulary);
  const TemporaryDirectory folder;
  const auto saved = folder.path() / "a" / checkpoint_name(1);
  const Run first = run_under<float>(a, vocabulary, 1, {}, folder.path() / "a");
  const Run loaded = run_under<float>(b, vocabulary, 0, saved, folder.path() / "b");
  CHECK(same_bits(loaded.kept, first.kept));
  CHECK(same_tensors(saved, folder.path() / "b" / checkpoint_name(1)));
  const Run more = run_under<float>(b, vocabulary, 2, saved, {});
  const Run one = run_under<float>({}, vocabulary, 2, saved, {});
  CHECK(more.tokens == one.tokens);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(more.losses[i] == doctest::Approx(one.losses[i]).epsilon(2e-6));
  }
}

}  // namespace llmc_test
