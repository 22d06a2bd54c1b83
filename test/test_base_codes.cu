// Adapters on a model of INT8 codes (--base-quant w8): the same training as on the numbers that the
// codes stand for, in less memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/models/int8_layout.h"
#include "llmc/models/trainable_set.h"
#include "test/adapter_shapes.h"
#include "test/layout_cases.h"
#include "test/layout_rig.h"
#include "test/plan_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

LayoutOptions options_with(const AdapterShape& adapters) {
  const std::int64_t steps = tiny_shapes() ? 2 : 20;
  LayoutOptions options{.vocabulary = 211, .steps = steps, .heads = 2, .layers = 2};
  options.adapters = adapters;
  options.base_codes = true;
  return options;
}

std::vector<AdapterShape> shapes() {
  return adapter_shapes(options_with({}).config());
}

// A run like train_one_rank(), whose model has the weights of `values`.
template <class T>
std::vector<float> losses_on(const LayoutOptions& options, const NamedFloats& values) {
  ModelRig<T> rig(options.config(), shape_of({}, options));
  TrainingState<T>& state = rig.state();
  initialise(state, rig.stream());
  for (const ParameterSpec& spec : state.table().specs()) {
    if (is_quantized(spec)) state.set_weight(spec, values.at(spec.name).data(), rig.stream());
  }
  std::vector<float> losses;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    DropoutRates dropout = options.dropout;
    dropout.adapter = options.adapters.dropout;
    losses.push_back(rig.gradients_of({batch_of(step, 0, options)},
                                      {.dropout = dropout, .seed = kSeed, .step = step}));
    state.apply_gradients(optimizer_of(options), kLearningRate, rig.stream());
  }
  return losses;
}

}  // namespace

TEST_SUITE("base codes") {
  TEST_CASE("20 steps have the losses of adapters on the dequantized model") {
    for (const AdapterShape& adapters : shapes()) {
      if (tiny_shapes() && adapters.layers.size() != shapes()[0].layers.size()) continue;
      CAPTURE(adapters.layers.size());
      LayoutOptions options = options_with(adapters);
      ModelRig<float> rig(options.config(), shape_of({}, options));
      initialise(rig.state(), rig.stream());
      const NamedFloats values = rig.weights();  // what the codes stand for
      options.base_codes = false;
      const std::vector<float> floats = losses_on<float>(options, values);
      options.base_codes = true;
      // Quantizing the numbers of codes gives the codes again.
      const std::vector<float> codes = losses_on<float>(options, values);
      for (std::size_t i = 0; i < floats.size(); ++i) CHECK(relative(codes[i], floats[i]) <= 2e-6);
    }
  }

  TEST_CASE("the values of codes are those of quantize_parameter") {
    const LayoutOptions options = options_with(shapes()[0]);
    ModelRig<float> rig(options.config(), shape_of({}, options));
    for (const ParameterSpec& spec : rig.state().table().specs()) {
      CAPTURE(spec.name);
      CHECK(spec.is_code == is_quantized(spec));
      const std::vector<float> values = random_floats(spec.size(), spec.id + 1);
      rig.state().set_weight(spec, values.data(), rig.stream());
      std::vector<float> expected = values;
      if (spec.is_code) {
        const WeightCodes weight = quantize_parameter(spec, values);
        const bool by_row = output_axis(spec) == OutputAxis::rows;
        for (std::int64_t i = 0; i < spec.size(); ++i) {
          const std::int64_t output = by_row ? i / spec.shape[1] : i % spec.shape[1];
          expected[i] = weight.scales[output] * static_cast<float>(weight.codes[i]);
        }
      }
      CHECK(llmc_test::same_bits(rig.weights().at(spec.name), expected));
    }
  }

  TEST_CASE("a pass reads the codes that are set after another pass") {
    const LayoutOptions options = options_with(shapes()[0]);
    const auto logits_with = [&](bool has_passed) {
      ModelRig<float> rig(options.config(), shape_of({}, options));
      initialise(rig.state(), rig.stream());
      const oracle::Batch batch = batch_of(0, 0, options);
      if (has_passed) rig.logits(batch);
      const ParameterSpec& wte = rig.state().table().find("wte.weight");
      rig.state().set_weight(wte, random_floats(wte.size(), 9).data(), rig.stream());
      return rig.logits(batch);
    };
    CHECK(logits_with(true) == logits_with(false));
  }

  TEST_CASE_TEMPLATE("data-parallel ranks train like one, with the stages that keep whole weights",
                     T, float, bf16) {
    for (const int stage : {0, 1, 2}) {
      if (tiny_shapes() && stage != 2) continue;
      LayoutOptions options = options_with(shapes()[0]);
      options.steps = tiny_shapes() ? 1 : 3;
      options.dropout = kDropout;
      const Layout layout{
          .ranks = 2, .stage = stage, .shard_ranks = stage == 0 ? 1 : 2, .micro_batches = 2};
      const Results ranks = train_ranks<T>(layout, options);
      const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-2;
      check_close(ranks, train_one_rank<T>(layout.batches(), options), tolerance, tolerance);
      options.memory.recompute = Recompute::full;
      CHECK(same_bits(train_ranks<T>(layout, options), ranks));
    }
  }

  TEST_CASE("a code takes a byte, and one matrix is dequantized at a time") {
    const LayoutOptions options = options_with(shapes()[0]);
    Context context;
    RunShape shape = shape_of({}, options);
    const auto plan = planned_segments(Dtype::bf16, options.config(), shape, context);
    const ParameterTable table = gpt2_parameters(options.config(), {}, shape);
    std::int64_t codes = 0, largest = 0, floats = 0;
    for (const ParameterSpec& spec : table.specs()) {
      const std::int64_t size = spec.stored_size();
      if (!spec.is_code) floats += 2 * round_up(size, kParameterAlignment);
      if (!spec.is_code) continue;
      const bool by_row = output_axis(spec) == OutputAxis::rows;
      const std::int64_t outputs = by_row ? spec.part.stored_rows : spec.shape[1];
      codes += round_up(size, std::int64_t{256}) + round_up(4 * outputs, std::int64_t{256});
      largest = std::max(largest, size);
    }
    CHECK(segment_of(plan, "INT8 weights") == codes);
    CHECK(segment_of(plan, "dequantized weight") == round_up(2 * largest, std::int64_t{256}));
    CHECK(segment_of(plan, "weights") == floats);
  }
}
