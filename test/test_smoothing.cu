// Calibration and smoothing: the function of the float model stays, and channels with large values
// cost the others no resolution.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/quantize/calibrated_scales.h"
#include "test/batch_rig.h"

using namespace llmc_test;

namespace {

// The weights of a fixture on the host, and those of models in inference made from them.
struct Model {
  explicit Model(const Fixture& fixture)
      : config(engine_config(fixture.config())), table(gpt2_parameters(config)), weights(table) {
    Stream stream;
    const oracle::Tensors parameters = fixture.parameters();
    for (const ParameterSpec& spec : table.specs()) {
      const auto& values = parameters.at(spec.name);
      const std::vector<float> floats(values.begin(), values.end());
      weights.set_weight(spec, floats.data(), stream);
    }
  }

  // The logits after a prompt. `pass` quantizes activations; without it the model is in floats.
  std::vector<float> logits(const Ids& prompt, const CalibratedScales& scales,
                            std::optional<Int8Pass> pass = {}) {
    const auto count = static_cast<std::int64_t>(prompt.size());
    Engine<float> engine(config,
                         {.B = 1, .T = 1, .training = false, .int8_weights = pass.has_value()});
    ActivationScales activations;
    Int8Pass own = pass.value_or(Int8Pass{});
    own.scales = pass ? &engine.state().quantized()->activations() : &activations;
    ModelPass<float> model(engine.runner().model(), engine.context(),
                           {.slots = 1, .capacity = count, .chunk = count}, engine.memory(), own);
    engine.memory().reserve("INT8 weights", activations.gelu_factors, config.layers,
                            4 * config.channels);
    engine.allocate();
    weights.copy_to(engine.state(), engine.stream());
    if (pass) {
      set_scales(*engine.state().quantized(), scales, engine.stream());
    } else if (!scales.gelu_factors.empty()) {
      activations.smooths_gelu = true;
      copy_to_device(activations.gelu_factors.data, scales.gelu_factors.data(),
                     std::ssize(scales.gelu_factors), engine.stream());
    }
    model.clear();
    model.clear_faults(0);
    const auto out = model.read_prompts({{.slot = 0, .tokens = prompt, .wants_logits = true}});
    std::vector<float> values(static_cast<std::size_t>(config.vocabulary));
    copy_to_host(values.data(), out.data, std::ssize(values), engine.stream());
    engine.stream().synchronize();
    return values;
  }

  // Multiplies some channels of the norms' outputs by `factor`, and divides the weights that
  // follow.
  void plant_outliers(float factor) {
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const std::string h = "h." + std::to_string(l) + ".";
      for (const auto& [norm, linear] :
           {std::pair<std::string, std::string>("ln_1", "attn.c_attn"), {"ln_2", "mlp.c_fc"}}) {
        std::vector<float>& weight = weights.of(h + linear + ".weight");
        const std::size_t C = weights.of(h + norm + ".weight").size(), N = weight.size() / C;
        for (std::size_t c = 3; c < C; c += 17) {
          weights.of(h + norm + ".weight")[c] *= factor;
          weights.of(h + norm + ".bias")[c] *= factor;
          for (std::size_t n = 0; n < N; ++n) weight[c * N + n] /= factor;
        }
      }
    }
  }

  ModelConfig config;
  ParameterTable table;
  HostWeights weights;
};

Ids text_of(const Fixture& fixture) {
  return random_ints(200, 5, fixture.integer("V"));
}

}  // namespace

TEST_SUITE_BEGIN("smoothing");

TEST_CASE("smoothing changes no result of the float model") {
  const Fixture fixture = load_fixture("odd");
  Model model(fixture);
  const Ids prompt = {210, 0, 17, 5, 5, 9};
  const std::vector<float> expected = model.logits(prompt, {});
  std::vector<BlockSmoothing> choices(static_cast<std::size_t>(model.config.layers));
  std::uint64_t seed = 0;
  for (std::size_t l = 0; l < choices.size(); ++l) {
    for (const InputSite site : kInputSites) {
      const std::int64_t K = (site == InputSite::mlp_c_proj ? 4 : 1) * model.config.channels;
      for (const float x : random_floats(K, seed++))
        choices[l][static_cast<std::size_t>(site)].factors.push_back(std::exp2(std::round(x)));
    }
    fold_smoothing(model.weights, static_cast<std::int64_t>(l), choices[l]);
  }
  CalibratedScales scales;
  scales.gelu_factors = calibrated_scales_detail::gelu_factors(choices, 4 * model.config.channels);
  CHECK(relative_l2(model.logits(prompt, scales), expected) <= 2e-6);
  // Without the factors of GELU, they differ.
  CHECK(relative_l2(model.logits(prompt, {}), expected) > 1e-2);
}

TEST_CASE("calibration finds the range of every channel") {
  const Fixture fixture = load_fixture("odd");
  const Model model(fixture);
  const Ids text = text_of(fixture);
  const std::int64_t T = model.config.context;
  const Calibration calibration =
      calibrate(model.config, model.weights, std::span(text).first(static_cast<std::size_t>(T)),
                {.window = T, .windows = 4, .rows = 5});
  Engine<float> engine(model.config, {.B = 1, .T = T});
  engine.allocate();
  model.weights.copy_to(engine.state(), engine.stream());
  engine.runner().forward(
      engine.runner().put({.batch = {.B = 1, .T = T, .inputs = {text.begin(), text.begin() + T}}}));
  const auto last = static_cast<std::size_t>(model.config.layers - 1);
  const Tensor<float, 2> gelu =
      engine.runner().activations().block(model.config.layers - 1, {T, 0, T, T}).gelu;
  std::vector<float> values(static_cast<std::size_t>(gelu.size()));
  copy_to_host(values.data(), gelu.data, gelu.size(), engine.stream());
  engine.stream().synchronize();
  const InputStatistics& statistics = calibration[last][3];
  const std::int64_t K = gelu.shape[1];
  REQUIRE(statistics.K() == K);
  CHECK(statistics.count() == 5);
  for (std::int64_t k = 0; k < K; ++k) {
    ValueRange range;
    for (std::int64_t r = 0; r < T; ++r)
      range = range.merged({values[r * K + k], values[r * K + k]});
    CHECK(range.min == statistics.channels[k].min);
    CHECK(range.max == statistics.channels[k].max);
  }
  CHECK(std::equal(values.begin(), values.begin() + K, statistics.rows.begin()));
}

TEST_CASE("smoothing is chosen where it reduces the error of the outputs") {
  constexpr std::int64_t K = 64, N = 48, rows = 32;
  InputStatistics input;
  input.rows = random_floats(rows * K, 3);
  for (std::int64_t r = 0; r < rows; ++r) input.rows[r * K + 9] *= 100;
  std::vector<float> weight = random_floats(K * N, 4, 0.1);
  for (std::int64_t n = 0; n < N; ++n) weight[9 * N + n] /= 100;
  for (std::int64_t k = 0; k < K; ++k) {
    ValueRange& range = input.channels.emplace_back();
    for (std::int64_t r = 0; r < rows; ++r)
      range = range.merged({input.rows[r * K + k], input.rows[r * K + k]});
  }
  for (const ActivationMode mode :
       {ActivationMode{}, {.zero_points = false}, {.is_static = true}}) {
    const SmoothingChoice choice = choose_smoothing(input, weight, mode);
    CHECK(choice.alpha > 0);
    CHECK(choice.error < choice.plain_error / 5);
    CHECK(choice.factors[9] > 10 * choice.factors[8]);
  }
}

TEST_CASE("smoothing repairs a model with outliers that keep its function") {
  const Fixture fixture = load_fixture("odd");
  Model plain(fixture), smoothed(fixture);
  const Ids prompt = random_ints(8, 1, fixture.integer("V")), text = text_of(fixture);
  const std::vector<float> expected = plain.logits(prompt, {});
  plain.plant_outliers(32);
  smoothed.plant_outliers(32);
  CHECK(relative_l2(plain.logits(prompt, {}), expected) <= 2e-6);
  for (const bool is_static : {false, true}) {
    CAPTURE(is_static);
    const Int8Pass pass{.quantizes_rows = true};
    QuantizeOptions options{.activations = {.is_static = is_static}, .smoothing = false};
    Model without(fixture), with(fixture);
    without.plant_outliers(32);
    with.plant_outliers(32);
    const CalibratedScales plain_scales =
        calibrate_scales(without.config, without.weights, text, options);
    options.smoothing = true;
    const CalibratedScales scales = calibrate_scales(with.config, with.weights, text, options);
    const double plain_error = relative_l2(without.logits(prompt, plain_scales, pass), expected);
    const double error = relative_l2(with.logits(prompt, scales, pass), expected);
    MESSAGE("error " << error << ", without smoothing " << plain_error);
    CHECK(error < 0.5 * plain_error);
    CHECK(error < 0.1);
  }
}

TEST_SUITE_END();
