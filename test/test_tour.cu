// The training loop with which llmc/TOUR.md opens, which quotes it from here.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "llmc/config/train_table.h"
#include "llmc/parallel/training_runner.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Sequences that count upwards, modulo the vocabulary, from random numbers.
Batch counting_batch(std::int64_t B, std::int64_t T, std::int64_t vocabulary, std::uint64_t seed) {
  Batch batch{B, T, {}, {}, {}};
  for (const std::int32_t first : random_ints(B, seed, vocabulary)) {
    for (std::int64_t t = 0; t < T; ++t) {
      batch.inputs.push_back(static_cast<std::int32_t>((first + t) % vocabulary));
      batch.targets.push_back(static_cast<std::int32_t>((first + t + 1) % vocabulary));
    }
  }
  return batch;
}

std::vector<float> train(Dtype dtype, const ModelConfig& config, const RunShape& shape, int steps) {
  const OptimizerOptions options = default_run_config().optimizer;
  auto read_batch = [&, seed = std::uint64_t{1}]() mutable {
    return counting_batch(shape.B, shape.T, config.vocabulary, seed++);
  };
  std::vector<float> losses;
  const float scale = 1.0f / static_cast<float>(shape.rows());

  const std::unique_ptr<TrainingRunner> model = make_training_runner(dtype, config, shape, {}, {});
  model->allocate();
  RunState& state = model->state();
  Stream& stream = model->stream();
  state.initialise(/*seed=*/1, stream);
  for (int step = 0; step < steps; ++step) {
    state.begin_step(stream);
    model->run_passes({.next = [&] { return prepare(read_batch()); },
                       .options = [](std::int64_t) { return PassOptions{}; },
                       .loss = {scale, state.loss(), state.loss_scale()}},
                      nullptr);
    state.finish_gradients(stream);
    state.apply_gradients(options, /*learning_rate=*/1e-2, stream);
    losses.push_back(state.loss_value(stream));
  }
  return losses;
}

}  // namespace

TEST_SUITE("tour") {
  TEST_CASE("the training loop of the tour learns to count") {
    const ModelConfig config{
        .vocabulary = 31, .context = 8, .layers = 2, .heads = 2, .channels = 16};
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      CAPTURE(dtype_name(dtype));
      const std::vector<float> losses =
          train(dtype, config, {.B = 4, .T = 8}, tiny_shapes() ? 4 : 40);
      CHECK(losses.front() == doctest::Approx(std::log(31.0)).epsilon(0.02));
      CHECK(losses.back() < (tiny_shapes() ? 1.0 : 0.5) * losses.front());
    }
  }
}
