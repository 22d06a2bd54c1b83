// A rank of a training run for tests: engine, state and steps on random tokens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/models/trainable_set.h"
#include "llmc/parallel/training_engine.h"
#include "llmc/train/train_step.h"
#include "test/model_rig.h"

namespace llmc_test {

using namespace llmc;

inline constexpr std::int64_t kB = 1, kT = 8, kVocabulary = 31;

// A run of the model below with `micro_batches` per rank.
inline RunConfig run_config(const Mesh& mesh, int zero, std::int64_t micro_batches) {
  RunConfig config = default_run_config();
  config.shape = {
      .vocabulary = kVocabulary, .context = kT, .layers = 3, .heads = 2, .channels = 16};
  config.batch.batch_size = kB;
  config.batch.seq_len = kT;
  config.batch.grad_accum = micro_batches;
  config.ranks.ranks = mesh.ranks;
  config.ranks.shard_group = mesh.shard_ranks;
  config.ranks.tp = mesh.tensor_ranks;
  config.ranks.pp = mesh.pipeline_ranks;
  config.ranks.zero = zero;
  config.optimizer.eps = 1e-4;
  config.schedule.steps = 100;
  return config;
}

inline Batch random_batch(std::int64_t first, std::int64_t B) {
  Batch batch{B, kT, {}, {}, {}};
  for (std::int64_t b = first; b < first + B; ++b) {
    const auto tokens = random_ints(kT + 1, static_cast<std::uint64_t>(b), kVocabulary);
    batch.inputs.insert(batch.inputs.end(), tokens.begin(), tokens.end() - 1);
    batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
  }
  return batch;
}

// The shape of a run with frozen parameters.
inline RunShape frozen_shape(const RunConfig& config, const std::vector<std::string>& frozen) {
  return with_frozen(config.run_shape(), config.shape, frozen);
}

// A rank of a run, with its own engine.
template <class T>
struct Rank {
  Rank(World& world, const RunConfig& run_config, const std::vector<std::string>& frozen = {})
      : config(run_config),
        exchange(world),
        engine(config.shape, frozen_shape(config, frozen), {}, Ranks(world, config.mesh())) {
    engine.allocate();
    engine.state().initialise(5, engine.stream());
  }
  TrainingState<T>& state() { return engine.state(); }
  Stream& stream() { return engine.stream(); }

  RunConfig config;
  Exchange exchange;
  TrainingEngine<T> engine;
};

// Everything that a checkpoint keeps, as rank 0 reads it.
template <class T>
std::vector<float> kept_values(TrainingState<T>& state, Stream& stream) {
  std::vector<float> all;
  for (const ParameterSpec& spec : state.table().specs()) {
    std::vector<float> values(static_cast<std::size_t>(spec.size())), more = values;
    state.get_weight(spec, values.data(), stream);
    all.insert(all.end(), values.begin(), values.end());
    state.get_moments(spec, values.data(), more.data(), stream);
    all.insert(all.end(), values.begin(), values.end());
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

template <class T>
std::vector<StepResult> train(Rank<T>& rank, const SampleSource& samples, int steps,
                              RunPosition position = {}) {
  TrainStep step(rank.config, rank.engine, rank.exchange, samples);
  step.read_ahead(position);
  std::vector<StepResult> results;
  for (int i = 0; i < steps; ++i) results.push_back(step.run(position));
  return results;
}

}  // namespace llmc_test
