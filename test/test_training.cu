// Training: PyTorch's 50 AdamW steps, micro-batches, checkpoints and resuming, Hugging Face
// directories.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "llmc/models/load_weights.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/model_rig.h"
#include "test/oracle/transformers.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Comparison;
using oracle::Fixture;
using oracle::load_fixture;
using oracle::training_batches;

namespace {

OptimizerOptions options_of(const Fixture& fixture) {
  return {.beta1 = fixture.number("beta1"),
          .beta2 = fixture.number("beta2"),
          .eps = fixture.number("eps"),
          .weight_decay = fixture.number("weight_decay"),
          .grad_clip = fixture.number("max_norm"),
          .loss_scale_window = 2000};
}

template <class T>
ModelRig<T> make_rig(const Fixture& fixture) {
  RunShape run;
  run.B = fixture.integer("B");
  run.T = fixture.integer("T");
  return ModelRig<T>(engine_config(fixture.config()), run);
}

struct Step {
  double loss, grad_norm;
};

template <class T>
Step train_step(ModelRig<T>& rig, const Fixture& fixture, std::int64_t step,
                std::int64_t micro_batches) {
  const float loss = rig.gradients_of(training_batches(fixture, step, micro_batches));
  rig.state().apply_gradients(options_of(fixture), fixture.number("lr"), rig.stream());
  const OptimizerState state = rig.state().optimizer_state(rig.stream());
  return {static_cast<double>(loss), static_cast<double>(state.gradient_norm)};
}

// Everything that a step changes: the weights and both moments, for bitwise comparison.
template <class T>
std::vector<NamedFloats> weights_and_moments(ModelRig<T>& rig) {
  std::vector<NamedFloats> all = {rig.weights(), {}, {}};
  for (const ParameterSpec& spec : rig.state().table().specs()) {
    auto &first = all[1][spec.name], &second = all[2][spec.name];
    first.resize(static_cast<std::size_t>(spec.size()));
    second.resize(first.size());
    rig.state().get_moments(spec, first.data(), second.data(), rig.stream());
  }
  return all;
}

}  // namespace

TEST_SUITE("training") {
  TEST_CASE_TEMPLATE("50 AdamW steps follow PyTorch, in one batch and in micro-batches", T, float,
                     bf16, fp16) {
    const Fixture fixture = load_fixture("adamw50");
    const std::int64_t steps = tiny_shapes() ? 1 : fixture.integer("steps");
    for (const std::int64_t micro_batches :
         {std::int64_t{1}, std::int64_t{fixture.integer("micro_batches")}}) {
      auto rig = make_rig<T>(fixture);
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(fixture.number("fp16_loss_scale"));
      std::vector<double> losses, norms;
      for (std::int64_t step = 0; step < steps; ++step) {
        const Step result = train_step(rig, fixture, step, micro_batches);
        losses.push_back(result.loss);
        norms.push_back(result.grad_norm);
      }
      if (tiny_shapes()) continue;
      for (const Comparison& c : compare_training(fixture, losses, norms, kDtypeOf<T>)) {
        CHECK_MESSAGE(c.ok(), describe(c));
      }
    }
  }

  TEST_CASE_TEMPLATE("a run stopped at any step and resumed equals the uninterrupted run", T, float,
                     bf16, fp16) {
    const Fixture fixture = load_fixture("adamw50");
    const std::int64_t steps = tiny_shapes() ? 2 : 4;
    const HuggingFaceConfig config = to_huggingface(engine_config(fixture.config()), std::nullopt);
    TemporaryDirectory folder;
    auto full_run = make_rig<T>(fixture);
    full_run.set_parameters(fixture.parameters());
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
      save_checkpoint(folder.path(), config, {step, step, step}, 1, full_run.state(),
                      full_run.stream());
      losses.push_back(train_step(full_run, fixture, step, 1).loss);
    }
    for (std::int64_t stop = 0; stop < steps; ++stop) {
      CAPTURE(stop);
      auto resumed = make_rig<T>(fixture);
      const RunPosition position = load_checkpoint(folder.path() / checkpoint_name(stop), 1,
                                                   resumed.state(), resumed.stream());
      CHECK(position.step == stop);
      for (std::int64_t step = stop; step < steps; ++step) {
        CHECK(train_step(resumed, fixture, step, 1).loss == losses[step]);
      }
      CHECK(weights_and_moments(resumed) == weights_and_moments(full_run));
    }
    auto other = make_rig<T>(fixture);
    CHECK_THROWS_WITH_AS(
        load_checkpoint(folder.path() / checkpoint_name(0), 2, other.state(), other.stream()),
        doctest::Contains("--seed 1, not 2"), Error);
  }

  TEST_CASE("an update with a loss or gradient that is not finite is skipped and counted") {
    const Fixture fixture = load_fixture("one_row");
    auto rig = make_rig<float>(fixture);
    rig.set_parameters(fixture.parameters());
    const OptimizerOptions options = default_optimizer();
    const auto consecutive_skips = [&] {
      return rig.state().optimizer_state(rig.stream()).consecutive_skips;
    };
    rig.gradients_of({fixture.batch()});
    rig.state().apply_gradients(options, 6e-4, rig.stream());
    CHECK(consecutive_skips() == 0);
    const auto before = weights_and_moments(rig);
    for (const float non_finite :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      rig.gradients_of({fixture.batch()});
      // One number in one gradient is not finite.
      copy_to_device(rig.state().source().gradient(rig.state().table().find("ln_f.weight")),
                     &non_finite, 1, rig.stream());
      rig.state().apply_gradients(options, 6e-4, rig.stream());
      CHECK(weights_and_moments(rig) == before);
    }
    CHECK(consecutive_skips() == 2);
    rig.gradients_of({fixture.batch()});
    rig.state().apply_gradients(options, 6e-4, rig.stream());
    CHECK(consecutive_skips() == 0);
    CHECK(weights_and_moments(rig) != before);
    CHECK(rig.state().optimizer_state(rig.stream()).updates == 2);
  }

  TEST_CASE_TEMPLATE("gradients have nothing of the step before, not even NaN", T, float, bf16) {
    const Fixture fixture = load_fixture("one_row");
    auto rig = make_rig<T>(fixture);
    rig.set_parameters(fixture.parameters());
    for (const std::int64_t micro_batches : {1, 2}) {
      const std::vector<oracle::Batch> batches(static_cast<std::size_t>(micro_batches),
                                               fixture.batch());
      rig.gradients_of(batches);
      const NamedFloats first = rig.gradients();
      for (const ParameterSpec& spec : rig.state().table().specs()) {
        const std::vector<float> stale(static_cast<std::size_t>(spec.stored_size()),
                                       std::numeric_limits<float>::quiet_NaN());
        copy_to_device(rig.state().source().gradient(spec), stale.data(), spec.stored_size(),
                       rig.stream());
      }
      rig.gradients_of(batches);
      CHECK(rig.gradients() == first);
    }
  }

  TEST_CASE("weights from transformers are saved and loaded bit for bit") {
    for (const char* name : {"hf_tiny", "hf_tiny_openai"}) {
      CAPTURE(name);
      const std::string directory = oracle::fixtures_dir() + "/" + name;
      const ModelConfig config =
          from_huggingface(read_huggingface_config(directory), "config.json");
      RunShape run;
      run.T = config.context;
      ModelRig<float> rig(config, run);
      load_weights(directory, rig.state(), rig.stream());
      const NamedFloats weights = rig.weights();
      TemporaryDirectory folder;
      const std::string saved = save_checkpoint(folder.path(), to_huggingface(config, std::nullopt),
                                                {}, 1, rig.state(), rig.stream());
      const HuggingFaceWeights original(directory), saved_weights(saved);
      CHECK(original.names() == saved_weights.names());
      for (const auto& [tensor, values] : weights) {
        std::vector<float> a(values.size()), b(values.size());
        const Shape shape = rig.state().table().find(tensor).shape;
        original.load(tensor, shape, a.data());
        saved_weights.load(tensor, shape, b.data());
        CHECK(a == b);
        CHECK(a == values);
      }
    }
  }

  TEST_CASE("initial values have the specified stddev and depend only on the seed") {
    ModelConfig config{.vocabulary = 257, .context = 32, .layers = 2, .heads = 2, .channels = 64};
    const RunShape run{.B = 1, .T = 8};
    ModelRig<float> rig(config, run);
    rig.state().initialise(7, rig.stream());
    const NamedFloats weights = rig.weights();
    const auto stddev = [&](const std::string& name) {
      double squares = 0;
      for (const float x : weights.at(name))
        squares += static_cast<double>(x) * static_cast<double>(x);
      return std::sqrt(squares / static_cast<double>(weights.at(name).size()));
    };
    // The standard deviation of n draws has a relative standard error of 1/sqrt(2n); the bounds are
    // five of these.
    CHECK(stddev("wte.weight") == doctest::Approx(0.02).epsilon(5 / std::sqrt(2.0 * 257 * 64)));
    CHECK(stddev("wpe.weight") == doctest::Approx(0.01).epsilon(5 / std::sqrt(2.0 * 32 * 64)));
    CHECK(stddev("h.1.mlp.c_proj.weight") ==
          doctest::Approx(0.02 / std::sqrt(2.0 * 2)).epsilon(5 / std::sqrt(2.0 * 64 * 256)));
    CHECK(stddev("h.0.ln_1.weight") == 1);
    CHECK(stddev("h.0.attn.c_attn.bias") == 0);
    CHECK(weights.at("h.0.mlp.c_fc.weight") != weights.at("h.1.mlp.c_fc.weight"));
    ModelRig<bf16> half(config, run);
    half.state().initialise(7, half.stream());
    CHECK(half.weights() == weights);
    rig.state().initialise(8, rig.stream());
    CHECK(rig.weights() != weights);
  }
}
