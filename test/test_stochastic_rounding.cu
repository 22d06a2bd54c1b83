// Stochastic rounding in addition to its cases in dev/ops/convert.h and adamw.h: it is right on
// average, exact for numbers that need no rounding, independent of how a tensor is split, and the
// same in a resumed run.
#include <doctest/doctest.h>

#include <cmath>
#include <iterator>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/config/resolve.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

// `inp` rounded to T as in update `step`, in pieces that end at `cuts` (multiples of 4).
template <class T>
std::vector<float> rounded(const std::vector<float>& inp, StochasticRounding rounding,
                           std::int32_t step, std::vector<std::int64_t> cuts = {}) {
  Stream stream;
  std::vector<float> all;
  cuts.push_back(std::ssize(inp));
  std::int64_t first = 0;
  for (const std::int64_t end : cuts) {
    const DeviceArray<float> from({inp.begin() + first, inp.begin() + end}, stream);
    const DeviceArray<T> to(std::vector<T>(static_cast<std::size_t>(end - first)), stream);
    StochasticRounding piece = rounding;
    piece.first += first;
    stochastic_convert(to.data(), static_cast<const float*>(from.data()), end - first, piece, step,
                       stream);
    CHECK(to.guards_intact());
    const std::vector<float> values = to_floats(to.stored());
    all.insert(all.end(), values.begin(), values.end());
    first = end;
  }
  return all;
}

// One optimizer step on the adamw50 fixture's batch for step `number`.
template <class T>
void step(ModelRig<T>& rig, const Fixture& fixture, std::int64_t number) {
  rig.gradients_of(batches_of_step(fixture, number, 1));
  rig.state().apply_gradients(default_optimizer(), 1e-3, rig.stream());
}

// A rig whose updates round stochastically.
template <class T>
struct Rounding : ModelRig<T> {
  Rounding(const Fixture& fixture, std::uint64_t seed)
      : ModelRig<T>(engine_config(fixture.config()),
                    {.B = fixture.integer("B"), .T = fixture.integer("T")}) {
    this->state().enable_stochastic_rounding(seed);
    this->set_loss_scale(1024);
  }
};

template <class T>
std::vector<float> working_weights(ModelRig<T>& rig) {
  std::vector<float> all;
  ParameterSource& source = rig.state().source();
  for (const ParameterSpec& spec : rig.state().table().specs()) {
    const auto values = to_floats(download(source.weight(spec).as<T>(), spec.size(), rig.stream()));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_SUITE("stochastic_rounding") {
  TEST_CASE_TEMPLATE("the mean of many draws is the number itself", T, bf16, fp16) {
    const std::int64_t draws = tiny_shapes() ? 400 : 40000;
    std::vector<float> numbers = {1.0f + 0.3f * static_cast<float>(kRounding<T>), -0.7f, 3.14159f,
                                  1e-3f, -123.456f};
    if (!tiny_shapes())
      numbers.push_back(0.999999f);  // rounds down once in 3900 (bf16), 490 (fp16) draws
    if (std::is_same_v<T, fp16>) numbers.insert(numbers.end(), {1.3e-5f, -4.4e-8f, 6.09e-5f});
    for (const float x : numbers) {
      CAPTURE(x);
      const std::vector<float> same(static_cast<std::size_t>(draws), x);
      double sum = 0;
      float low = INFINITY, high = -INFINITY;
      for (const float y : rounded<T>(same, {.seed = 5, .tensor = 2}, 7)) {
        sum += as_double(y);
        low = std::fmin(low, y);
        high = std::fmax(high, y);
      }
      // Only the two neighbours occur.
      CHECK(low < x);
      CHECK(high > x);
      const T nearest = from_float<T>(x);
      CHECK((to_float(nearest) == low || to_float(nearest) == high));
      const double gap = static_cast<double>(high) - static_cast<double>(low);
      CHECK(gap <= std::fmax(std::abs(x) * 2 * kRounding<T>, 0x1p-24));
      // A draw has a standard deviation of at most half a gap; the bound is five standard errors.
      CHECK(std::abs(sum / static_cast<double>(draws) - static_cast<double>(x)) <
            5 * 0.5 * gap / std::sqrt(static_cast<double>(draws)));
    }
  }

  TEST_CASE_TEMPLATE("numbers that need no rounding do not change", T, bf16, fp16) {
    std::vector<float> exact;
    for (const float x : random_floats(1000, 9, 10.0)) exact.push_back(to_float(from_float<T>(x)));
    exact.insert(exact.end(), {0.0f, -0.0f, 1.0f, INFINITY, -INFINITY});
    if (std::is_same_v<T, fp16>) exact.insert(exact.end(), {0x1p-24f, -3 * 0x1p-24f, 65504.0f});
    CHECK(rounded<T>(exact, {.seed = 1}, 1) == exact);
    CHECK(std::isnan(rounded<T>({NAN}, {.seed = 1}, 1)[0]));
  }

  TEST_CASE_TEMPLATE("draws depend on seed, tensor, step and index, not on how the tensor is split",
                     T, bf16, fp16) {
    const std::vector<float> x = random_floats(803, 10);
    const StochasticRounding rounding{.seed = 3, .tensor = 4};
    const std::vector<float> whole = rounded<T>(x, rounding, 6);
    CHECK(rounded<T>(x, rounding, 6, {4, 128, 700}) == whole);
    CHECK(rounded<T>(x, rounding, 7) != whole);
    CHECK(rounded<T>(x, {.seed = 4, .tensor = 4}, 6) != whole);
    CHECK(rounded<T>(x, {.seed = 3, .tensor = 5}, 6) != whole);
    CHECK(rounded<T>(x, {.seed = 3, .tensor = 4, .first = 4}, 6) != whole);
    CHECK_THROWS_WITH_AS(rounded<T>(x, {.first = 2}, 6), doctest::Contains("multiple of 4"), Error);
  }

  TEST_CASE_TEMPLATE("AdamW rounds master weights stochastically", T, bf16, fp16) {
    const Fixture fixture = load_fixture("adamw50");
    Rounding<T> rig(fixture, 3);
    rig.set_parameters(fixture.parameters());
    step(rig, fixture, 0);
    step(rig, fixture, 1);
    const NamedFloats masters = rig.weights();
    std::vector<float> expected;
    for (const ParameterSpec& spec : rig.state().table().specs()) {
      const auto values = rounded<T>(masters.at(spec.name), {.seed = 3, .tensor = spec.id}, 2);
      expected.insert(expected.end(), values.begin(), values.end());
    }
    CHECK(working_weights(rig) == expected);
  }

  TEST_CASE_TEMPLATE("a resumed run has bitwise the same working weights", T, bf16, fp16) {
    const Fixture fixture = load_fixture("adamw50");
    const HuggingFaceConfig config = to_huggingface(engine_config(fixture.config()), std::nullopt);
    TemporaryDirectory folder;
    Rounding<T> straight(fixture, 3);
    straight.set_parameters(fixture.parameters());
    const std::int64_t steps = tiny_shapes() ? 2 : 3;
    for (std::int64_t i = 0; i < steps; ++i) {
      save_checkpoint(folder.path(), config, {i, i, i}, 1, straight.state(), straight.stream());
      step(straight, fixture, i);
    }
    // Under sanitizers only from the last checkpoint, the one with the most state.
    for (std::int64_t stop = tiny_shapes() ? steps - 1 : 0; stop < steps; ++stop) {
      CAPTURE(stop);
      Rounding<T> resumed(fixture, 3);
      load_checkpoint(folder.path() / checkpoint_name(stop), 1, resumed.state(), resumed.stream());
      resumed.state().restore_rounding(resumed.stream());
      for (std::int64_t i = stop; i < steps; ++i) step(resumed, fixture, i);
      CHECK(resumed.weights() == straight.weights());
      CHECK(working_weights(resumed) == working_weights(straight));
    }
  }

  TEST_CASE("--stochastic-rounding needs a half-precision dtype") {
    Request request;
    request.precision.stochastic_rounding = true;
    CHECK_THROWS_WITH_AS(resolve(request, {}),
                         doctest::Contains("--stochastic-rounding has no effect with --dtype fp32"),
                         Error);
    request.precision.dtype = Dtype::bf16;
    CHECK(resolve(request, {}).precision.stochastic_rounding);
  }
}
