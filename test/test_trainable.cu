// Frozen parameters on one rank: training leaves them as they are, and changes nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "llmc/config/train_table.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/trainable_set.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/train/watch/flops.h"
#include "test/layout_rig.h"
#include "test/plan_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

LayoutOptions options_with(const std::vector<std::string>& frozen, std::int64_t steps) {
  return {.vocabulary = 31,
          .steps = steps,
          .heads = 2,
          .layers = 1,
          .masks_targets = true,
          .frozen = frozen};
}

std::vector<std::string> parameter_names(const ModelConfig& config) {
  std::vector<std::string> names;
  const ParameterTable table = gpt2_parameters(config);
  for (const ParameterSpec& spec : table.specs()) names.push_back(spec.name);
  return names;
}

double norm_of(const NamedFloats& gradients) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  return std::sqrt(squares);
}

bool is_zero(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float x) { return x == 0; });
}

template <class T>
std::vector<float> rounded(std::vector<float> values) {
  for (float& x : values) x = to_float(from_float<T>(x));
  return values;
}

// Checks a run whose frozen parameters are `frozen` against one in which all are trainable. Both
// have trained one step without clipping.
void check_first_step(const Results& run, const Results& all, const std::set<std::string>& frozen) {
  CHECK(same_bits(run.losses, all.losses));
  for (const auto& [name, gradient] : all.gradients) {
    CAPTURE(name);
    CHECK_FALSE(is_zero(gradient));
    if (frozen.contains(name)) {
      CHECK(is_zero(run.gradients.at(name)));
      CHECK(is_zero(run.first_moments.at(name)));
      CHECK(is_zero(run.second_moments.at(name)));
      continue;
    }
    CHECK(llmc_test::same_bits(run.gradients.at(name), gradient));
    CHECK(llmc_test::same_bits(run.weights.at(name), all.weights.at(name)));
    CHECK(llmc_test::same_bits(run.first_moments.at(name), all.first_moments.at(name)));
    CHECK(llmc_test::same_bits(run.second_moments.at(name), all.second_moments.at(name)));
  }
  CHECK(std::abs(static_cast<double>(run.norms[0]) / norm_of(run.gradients) - 1) <= 1e-6);
  CHECK(run.norms[0] <= all.norms[0]);
}

// The plan of one rank with these frozen parameters.
std::vector<MemoryPlan::Segment> plan_with(Dtype dtype, const std::vector<std::string>& frozen,
                                           std::int64_t layers = 1) {
  Context context;
  RunShape shape{.B = 1, .T = kSequence};
  shape.frozen = frozen;
  LayoutOptions options = options_with({}, 1);
  options.layers = layers;
  return planned_segments(dtype, options.config(), shape, context);
}

// The bytes of the input of a linear layer, if only a frozen weight's gradient would read it.
std::int64_t unread_input(const std::string& weight, Dtype dtype) {
  const ModelConfig config = options_with({}, 1).config();
  const std::int64_t columns = weight == "h.0.attn.c_attn.weight"  ? config.channels
                               : weight == "h.0.mlp.c_fc.weight"   ? config.channels
                               : weight == "h.0.mlp.c_proj.weight" ? 4 * config.channels
                                                                   : 0;
  return round_up(kSequence * columns * element_bytes(dtype), std::int64_t{256});
}

}  // namespace

TEST_SUITE("trainable") {
  TEST_CASE_TEMPLATE(
      "each parameter keeps its bits if it is frozen, and changes none of the others' first step",
      T, float, bf16, fp16) {
    LayoutOptions options = options_with({}, 1);
    options.stochastic_rounding = sizeof(T) == 2;
    REQUIRE(optimizer_of(options).weight_decay > 0);
    const Results all = train_one_rank<T>(2, options);
    options.steps = 0;
    const Results initial = train_one_rank<T>(2, options);
    for (const std::string& name : parameter_names(options.config())) {
      if (tiny_shapes() && name != "wte.weight" && name != "h.0.ln_2.bias") continue;
      CAPTURE(name);
      options.frozen = {name};
      options.steps = 1;
      check_first_step(train_one_rank<T>(2, options), all, {name});
      options.steps = 3;
      options.grad_clip = 0.01;
      const Results later = train_one_rank<T>(2, options);
      options.grad_clip = 0;
      CHECK(llmc_test::same_bits(later.weights.at(name), rounded<T>(initial.weights.at(name))));
      for (const auto& [other, values] : later.weights) {
        CAPTURE(other);
        if (other != name) CHECK_FALSE(llmc_test::same_bits(values, initial.weights.at(other)));
      }
    }
  }

  TEST_CASE_TEMPLATE("a large frozen parameter begins with the values of a trainable one", T, float,
                     bf16, fp16) {
    LayoutOptions options = options_with({}, 0);
    options.vocabulary = 5000;  // wte is filled in several chunks
    const Results all = train_one_rank<T>(1, options);
    options.frozen = {"wte.weight"};
    const Results run = train_one_rank<T>(1, options);
    CHECK(llmc_test::same_bits(run.weights.at("wte.weight"),
                               rounded<T>(all.weights.at("wte.weight"))));
  }

  TEST_CASE_TEMPLATE("everything can be frozen but one norm, or one vector", T, float, bf16) {
    LayoutOptions options = options_with({}, 1);
    const Results all = train_one_rank<T>(1, options);
    const std::vector<std::string> names = parameter_names(options.config());
    const std::vector<std::set<std::string>> sets = {
        {"h.0.ln_1.weight", "h.0.ln_1.bias"}, {"ln_f.weight", "ln_f.bias"}, {"h.0.mlp.c_fc.bias"}};
    for (const std::set<std::string>& trainable : sets) {
      CAPTURE(*trainable.begin());
      options.frozen.clear();
      std::ranges::copy_if(names, std::back_inserter(options.frozen),
                           [&](const std::string& name) { return !trainable.contains(name); });
      check_first_step(train_one_rank<T>(1, options), all,
                       {options.frozen.begin(), options.frozen.end()});
    }
  }

  TEST_CASE("gradients, moments and master weights take memory only for trainable parameters") {
    const ParameterTable table = gpt2_parameters(options_with({}, 1).config());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
      const auto all = plan_with(dtype, {});
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        const std::int64_t bytes = 4 * round_up(spec.stored_size(), kParameterAlignment);
        const std::int64_t master_bytes = dtype == Dtype::fp32 ? 0 : bytes;
        const auto plan = plan_with(dtype, {spec.name});
        const std::int64_t input = unread_input(spec.name, dtype);
        CHECK(plan.size() == all.size() + (input > 0 ? 1 : 0));
        CHECK(segment_of(plan, "shared activations") == input);
        for (const MemoryPlan::Segment& segment : all) {
          CAPTURE(segment.name);
          const std::int64_t saved = segment.bytes - segment_of(plan, segment.name);
          if (segment.name == "staging") {  // it has a partial sum of the norm per 1024 elements
            CHECK(saved >= 0);
            continue;
          }
          CHECK(saved == (segment.name == "gradients"        ? bytes
                          : segment.name == "moments"        ? 2 * bytes
                          : segment.name == "master weights" ? master_bytes
                          : segment.name == "activations"    ? input
                                                             : 0));
        }
      }
    }
  }

  TEST_CASE("blocks below the lowest one that learns keep no activations") {
    const std::int64_t layers = 4;
    const auto activations = [&](const std::string& learns) {
      LayoutOptions options = options_with({}, 1);
      options.layers = layers;
      std::vector<std::string> frozen;
      for (const std::string& name : parameter_names(options.config())) {
        if (!name.starts_with(learns)) frozen.push_back(name);
      }
      return segment_of(plan_with(Dtype::fp32, frozen, layers), "activations");
    };
    const auto of_blocks = [&](std::int64_t n) {
      return segment_of(plan_with(Dtype::fp32, {}, n), "activations");
    };
    const std::int64_t block = of_blocks(2) - of_blocks(1);
    // Norms read no input of a linear layer.
    const std::int64_t inputs = unread_input("h.0.attn.c_attn.weight", Dtype::fp32) +
                                unread_input("h.0.mlp.c_fc.weight", Dtype::fp32) +
                                unread_input("h.0.mlp.c_proj.weight", Dtype::fp32);
    for (std::int64_t l = 0; l < layers; ++l) {
      const std::string h = "h." + std::to_string(l);
      CHECK(activations(h + ".ln_1") == of_blocks(layers) - l * block - (layers - l) * inputs);
    }
    CHECK(activations("ln_f") == of_blocks(1) - inputs);
    CHECK(activations("wpe") == of_blocks(layers) - layers * inputs);
  }

  TEST_CASE("patterns choose whole names, and a pipeline loses the passes below what learns") {
    RunConfig config = default_run_config();
    config.shape = options_with({}, 1).config();
    config.shape.layers = 12;
    const std::vector<std::string> names = parameter_names(config.shape);
    const auto learning = [&](std::vector<std::string> only, std::vector<std::string> freeze) {
      config.finetune.train_only = std::move(only);
      config.finetune.freeze = std::move(freeze);
      config.pipeline = make_pipeline({.ranks = 3, .micro_batches = 2}, 12);
      choose_trainable(config, "");
      std::vector<std::string> all;
      std::ranges::copy_if(names, std::back_inserter(all), [&](const std::string& name) {
        return std::ranges::find(config.frozen, name) == config.frozen.end();
      });
      return all;
    };
    CHECK(learning({"ln_f.bias", "h.11.*.c_fc.?ias"}, {}) ==
          std::vector<std::string>{"h.11.mlp.c_fc.bias", "ln_f.bias"});
    CHECK(config.pipeline.first_backward == 2);
    CHECK(trainable_text(config) ==
          "training 80 of 40144 parameters (0.199%), in 2 of 148 tensors");
    CHECK(learning({"h.[0-5].ln_1.bias"}, {}).size() == 6);  // neither h.10 nor h.11
    CHECK(config.pipeline.first_backward == 0);
    CHECK(learning({}, {"wte.*", "wpe.*", "h.[0-5].*"}).size() == names.size() - 2 - 6 * 12);
    CHECK(config.pipeline.first_backward == 1);
    const auto refused = [&](std::vector<std::string> only, std::vector<std::string> freeze) {
      return complaint([&] { learning(std::move(only), std::move(freeze)); });
    };
    CHECK(contains(refused({"h.12.*"}, {}), "--train-only: 'h.12.*' matches no parameter"));
    CHECK(contains(refused({}, {"ln_f.*", "c_fc"}), "--freeze: 'c_fc' matches no parameter"));
    CHECK(contains(refused({}, {"*"}), "there is nothing to train"));
  }

  TEST_CASE("FLOP count the gradients that a run computes") {
    ModelConfig config = options_with({}, 1).config();
    config.layers = 3;
    const std::int64_t T = 8, C = config.channels;
    const auto flops = [&](const std::vector<std::string>& frozen) {
      return flops_per_token(gpt2_parameters(config, {}, {.frozen = frozen}), config, T);
    };
    double n = 0;
    std::vector<std::string> but_last_mlp;
    double last_mlp = 0, head = 0, final_norm = 0;
    const ParameterTable table = gpt2_parameters(config);
    for (const ParameterSpec& spec : table.specs()) {
      const auto size = static_cast<double>(spec.size());
      if (spec.name != "wpe.weight") n += size;
      if (spec.name == "wte.weight") head = size;
      if (spec.block == 4) final_norm += size;
      const bool is_last_mlp = spec.name == "h.2.mlp.c_proj.weight";
      if (is_last_mlp) last_mlp = size;
      if (!is_last_mlp) but_last_mlp.push_back(spec.name);
    }
    const auto attention = static_cast<double>(3 * T * C);
    CHECK(flops({}).causal == doctest::Approx(6 * n + 6 * attention));
    CHECK(flops({}).full == doctest::Approx(6 * n + 12 * attention));
    // The forward pass, the gradients that reach the output of the last block, and one matrix.
    CHECK(flops(but_last_mlp).causal ==
          doctest::Approx(2 * n + 2 * attention + 2 * (head + final_norm) + 2 * last_mlp));
  }

  TEST_CASE("moments of frozen parameters are ignored, and they have only weights to compare") {
    RunShape shape{.B = 1, .T = kSequence};
    shape.frozen = {"h.0.mlp.c_proj.weight"};
    ModelRig<bf16> rig(options_with({}, 1).config(), shape);
    TrainingState<bf16>& state = rig.state();
    state.initialise(kSeed, rig.stream());
    const ParameterSpec& spec = state.table().find(shape.frozen[0]);
    std::vector<float> first = random_floats(spec.size(), 1), second = first;
    state.set_moments(spec, first.data(), second.data(), rig.stream());
    state.get_moments(spec, first.data(), second.data(), rig.stream());
    CHECK(is_zero(first));
    CHECK(is_zero(second));
    // A weight is rounded as it is set, because no master weight keeps the other digits.
    const std::vector<float> values = random_floats(spec.size(), 2);
    state.set_weight(spec, values.data(), rig.stream());
    std::vector<float> read(values.size());
    state.get_weight(spec, read.data(), rig.stream());
    CHECK(llmc_test::same_bits(read, rounded<bf16>(values)));
    std::set<std::string> kinds, all_kinds;
    state.visit_kept([&](const char* kind, const ParameterSpec& visited, auto, bool) {
      all_kinds.insert(kind);
      if (visited.name == spec.name) kinds.insert(kind);
    });
    CHECK(kinds == std::set<std::string>{"weights"});
    CHECK(all_kinds.size() == 4);
  }

  TEST_CASE("quantized passes read frozen weights, and other gradients keep their bits") {
    for (const QatMode mode : {QatMode::w8, QatMode::w8a8}) {
      LayoutOptions options = options_with({}, 1);
      options.qat = mode;
      options.zero_points = mode == QatMode::w8a8;
      const Results all = train_one_rank<float>(1, options);
      for (const std::string& name : parameter_names(options.config())) {
        if (tiny_shapes() && name != "h.0.attn.c_attn.weight") continue;
        CAPTURE(name);
        options.frozen = {name};
        check_first_step(train_one_rank<float>(1, options), all, {name});
      }
    }
  }
}
