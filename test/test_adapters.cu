// LoRA and IA3 against an fp64 oracle, against PEFT, and next to the model that they change.
// Several ranks are in test_trainable_ranks.cu, recomputation and offloading in memory_cases.h.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/trainable_set.h"
#include "test/adapter_samples.h"
#include "test/adapter_shapes.h"
#include "test/layout_cases.h"
#include "test/layout_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using oracle::Tensors;
using DoubleVec = oracle::Vec;

ModelConfig small_model() {
  return LayoutOptions{.vocabulary = 31, .heads = 2, .layers = 2}.config();
}

oracle::Config definition_config(const ModelConfig& model) {
  return {model.context, model.vocabulary, model.layers, model.heads, model.channels};
}

// Random values of all parameters, none of which leaves the model unchanged.
template <class T>
Tensors set_random(ModelRig<T>& rig) {
  Tensors values;
  for (const ParameterSpec& spec : rig.state().table().specs()) {
    std::vector<float> floats = random_floats(spec.size(), spec.id + 1, 0.2);
    const bool is_factor = spec.initializer == Initializer::one;
    for (float& x : floats) x = to_float(from_float<T>(is_factor ? 1 + x : x));
    rig.state().set_weight(spec, floats.data(), rig.stream());
    values[spec.name] = DoubleVec(floats.begin(), floats.end());
  }
  return values;
}

double dot(const DoubleVec& a, const DoubleVec& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// A row-major matrix of doubles.
struct Matrix {
  const DoubleVec& values;
  std::int64_t columns;
  double operator()(std::int64_t i, std::int64_t j) const { return values[i * columns + j]; }
};

// The change of a layer's weight (K, N) and bias (N) by its adapter, and the gradients of its
// parameters, from those of the changed weight and bias. From the definitions in adapter_shape.h.
struct Definition {
  const AdapterShape& shape;
  const LayerAdapter& adapter;
  std::int64_t K, N;

  bool scales_outputs() const { return adapter.layer.ends_with("c_attn"); }
  std::int64_t first() const { return shape.fixes_query && scales_outputs() ? N / 3 : 0; }

  void change(Tensors& p) const {
    DoubleVec& weight = p.at(adapter.layer + ".weight");
    DoubleVec& bias = p.at(adapter.layer + ".bias");
    if (shape.kind == AdapterKind::lora) {
      const Matrix a{p.at(adapter.layer + ".lora_A.weight"), K};
      const Matrix b{p.at(adapter.layer + ".lora_B.weight"), N};
      for (std::int64_t k = 0; k < K; ++k) {
        for (std::int64_t n = 0; n < N; ++n) {
          for (std::int64_t r = 0; r < adapter.rank; ++r) {
            weight[k * N + n] += adapter.scale * a(r, k) * b(r, n);
          }
        }
      }
      return;
    }
    const DoubleVec& scale = p.at(adapter.layer + ".ia3_l");
    for (std::int64_t i = 0; i < K * N; ++i) {
      if (!scales_outputs()) weight[i] *= scale[i / N];
      if (scales_outputs() && i % N >= first()) weight[i] *= scale[i % N - first()];
    }
    if (!scales_outputs()) return;
    for (std::int64_t n = first(); n < N; ++n) bias[n] *= scale[n - first()];
  }

  void add_gradients(Tensors& gradients, const Tensors& p, const Tensors& changed) const {
    const Matrix d{changed.at(adapter.layer + ".weight"), N};
    const Matrix weight{p.at(adapter.layer + ".weight"), N};
    if (shape.kind == AdapterKind::lora) {
      const std::string &name_a = adapter.layer + ".lora_A.weight",
                        &name_b = adapter.layer + ".lora_B.weight";
      const Matrix a{p.at(name_a), K}, b{p.at(name_b), N};
      DoubleVec &d_a = gradients[name_a], &d_b = gradients[name_b];
      d_a.resize(adapter.rank * K);
      d_b.resize(adapter.rank * N);
      for (std::int64_t r = 0; r < adapter.rank; ++r) {
        for (std::int64_t k = 0; k < K; ++k) {
          for (std::int64_t n = 0; n < N; ++n) {
            d_a[r * K + k] += adapter.scale * b(r, n) * d(k, n);
            d_b[r * N + n] += adapter.scale * a(r, k) * d(k, n);
          }
        }
      }
      return;
    }
    DoubleVec& d_scale = gradients[adapter.layer + ".ia3_l"];
    d_scale.resize(scales_outputs() ? N - first() : K);
    for (std::int64_t k = 0; k < K; ++k) {
      for (std::int64_t n = 0; n < N; ++n) {
        if (!scales_outputs()) d_scale[k] += d(k, n) * weight(k, n);
        if (scales_outputs() && n >= first()) d_scale[n - first()] += d(k, n) * weight(k, n);
      }
    }
    if (!scales_outputs()) return;
    const DoubleVec &bias = p.at(adapter.layer + ".bias"),
                    &d_bias = changed.at(adapter.layer + ".bias");
    for (std::int64_t n = first(); n < N; ++n) d_scale[n - first()] += d_bias[n] * bias[n];
  }
};

std::vector<Definition> definitions(const ModelConfig& model, const AdapterShape& shape) {
  std::vector<Definition> all;
  const ParameterTable table = gpt2_parameters(model);
  for (const LayerAdapter& adapter : shape.layers) {
    const ParameterSpec& weight = table.find(adapter.layer + ".weight");
    all.push_back({shape, adapter, weight.shape[0], weight.shape[1]});
  }
  return all;
}

// The parameters of the model with its adapters merged, in fp64.
Tensors merged(const ModelConfig& model, const AdapterShape& shape, Tensors p) {
  for (const Definition& definition : definitions(model, shape)) definition.change(p);
  return p;
}

Tensors adapter_gradients(const ModelConfig& model, const AdapterShape& shape, const Tensors& p,
                          const oracle::Batch& batch) {
  const oracle::Config config = definition_config(model);
  const Tensors changed = merged(model, shape, p);
  const Tensors d =
      oracle::backward(config, changed, batch, oracle::forward(config, changed, batch));
  Tensors gradients;
  for (const Definition& definition : definitions(model, shape)) {
    definition.add_gradients(gradients, p, d);
  }
  return gradients;
}

std::vector<AdapterShape> shapes_without_dropout(const ModelConfig& model) {
  std::vector<AdapterShape> shapes = adapter_shapes(model);
  for (AdapterShape& shape : shapes) shape.dropout = 0;
  return shapes;
}

RunShape run_with(const AdapterShape& adapters, const ModelConfig& model) {
  RunShape shape{.B = 2, .T = kSequence};
  shape.adapters = adapters;
  return with_frozen(std::move(shape), model, {});
}

oracle::Batch some_batch() {
  return batch_of(0, 0, {.vocabulary = 31, .B = 2});
}

}  // namespace

TEST_SUITE("adapters") {
  TEST_CASE("the oracle's gradients of adapters are those of finite differences") {
    const ModelConfig model = small_model();
    for (const AdapterShape& shape : shapes_without_dropout(model)) {
      ModelRig<float> rig(model, run_with(shape, model));
      const Tensors p = set_random(rig);
      const oracle::Batch batch = some_batch();
      for (const auto& [name, gradient] : adapter_gradients(model, shape, p, batch)) {
        CAPTURE(name);
        const double norm = std::sqrt(dot(gradient, gradient));
        // Along the gradient, and along a random direction.
        for (const bool along : {true, false}) {
          const DoubleVec direction =
              along ? gradient : oracle::to_double(random_floats(std::ssize(gradient), 3));
          const double step = 1e-5 / std::sqrt(dot(direction, direction));
          const auto loss = [&](double sign) {
            Tensors moved = p;
            for (std::size_t i = 0; i < gradient.size(); ++i)
              moved[name][i] += sign * step * direction[i];
            return oracle::mean_loss(definition_config(model), merged(model, shape, moved), batch);
          };
          const double slope = (loss(1) - loss(-1)) / (2e-5);
          const double expected = dot(gradient, direction) * step / 1e-5;
          CHECK(std::abs(slope - expected) <= 1e-6 * norm);
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("losses and gradients are those of the oracle", T, float, bf16) {
    const ModelConfig model = small_model();
    const double allowed = sizeof(T) == 4 ? 3e-6 : 0.03;
    for (const AdapterShape& shape : shapes_without_dropout(model)) {
      CAPTURE(shape.layers.size());
      CAPTURE(shape.fixes_query);
      ModelRig<T> rig(model, run_with(shape, model));
      const Tensors p = set_random(rig);
      const oracle::Batch batch = some_batch();
      const double loss = rig.gradients_of({batch});
      const double expected =
          oracle::mean_loss(definition_config(model), merged(model, shape, p), batch);
      CHECK(std::abs(loss - expected) <= allowed * expected);
      const NamedFloats gradients = rig.gradients();
      for (const auto& [name, gradient] : adapter_gradients(model, shape, p, batch)) {
        CAPTURE(name);
        CHECK(relative_l2(oracle::to_double(gradients.at(name)), gradient) <= allowed);
      }
    }
  }

  TEST_CASE_TEMPLATE("adapters begin without an effect, to the bit", T, float, bf16, fp16) {
    const ModelConfig model = small_model();
    const oracle::Batch batch = some_batch();
    ModelRig<T> base(model, {.B = 2, .T = kSequence});
    base.state().initialise(kSeed, base.stream());
    const std::vector<double> expected = base.logits(batch);
    for (const AdapterShape& shape : adapter_shapes(model)) {
      ModelRig<T> rig(model, run_with(shape, model));
      rig.state().initialise(kSeed, rig.stream());
      CHECK(rig.logits(batch) == expected);
      for (const ParameterSpec& spec : rig.state().table().specs()) {
        if (!spec.name.ends_with("lora_A.weight")) continue;
        CAPTURE(spec.name);
        const std::vector<float> values = rig.weights().at(spec.name);
        const double bound = 1 / std::sqrt(static_cast<double>(spec.shape[1]));
        const auto [least, most] = std::ranges::minmax(values);
        CHECK(-bound <= least);
        CHECK(most <= bound);
        CHECK(most - least > 1.5 * bound);
      }
    }
  }

  TEST_CASE("matrices decay, vectors around 1 do not, and the model keeps its random numbers") {
    const ModelConfig model = small_model();
    const ParameterTable base = gpt2_parameters(model);
    for (const AdapterShape& shape : adapter_shapes(model)) {
      const ParameterTable table = gpt2_parameters(model, {}, run_with(shape, model));
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        CHECK(spec.trainable == spec.is_adapter);
        if (spec.is_adapter) CHECK(spec.weight_decay == (spec.shape.size() == 2));
        if (!spec.is_adapter) CHECK(spec.id == base.find(spec.name).id);
      }
    }
  }

  TEST_CASE("with dropout of their inputs, the gradients of adapters are finite differences") {
    const ModelConfig model = small_model();
    const AdapterShape shape = lora_shape(model, 4, 0.5);
    ModelRig<float> rig(model, run_with(shape, model));
    const Tensors p = set_random(rig);
    const PassOptions options{.dropout = {.adapter = shape.dropout}, .seed = 3, .step = 5};
    rig.gradients_of({some_batch()}, options);
    const NamedFloats gradients = rig.gradients();
    for (const std::string name : {"h.0.attn.c_attn.lora_A.weight", "h.0.mlp.c_fc.lora_B.weight",
                                   "h.1.mlp.c_proj.lora_A.weight"}) {
      if (tiny_shapes() && name.find("lora_B") == name.npos) continue;
      CAPTURE(name);
      const ParameterSpec& spec = rig.state().table().find(name);
      const DoubleVec gradient = oracle::to_double(gradients.at(name));
      const double norm = std::sqrt(dot(gradient, gradient)), step = 0.05;
      const auto loss = [&](double distance) {
        std::vector<float> moved;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          moved.push_back(static_cast<float>(p.at(name)[i] + distance * gradient[i] / norm));
        }
        rig.state().set_weight(spec, moved.data(), rig.stream());
        return static_cast<double>(rig.gradients_of({some_batch()}, options));
      };
      // Two step sizes cancel the third derivative; the rest is the rounding of the losses.
      const double wide = (loss(2 * step) - loss(-2 * step)) / (4 * step);
      const double slope = (4 * (loss(step) - loss(-step)) / (2 * step) - wide) / 3;
      loss(0);
      CHECK(std::abs(slope - norm) <= 2e-3 * norm);
    }
  }

  TEST_CASE_TEMPLATE("20 steps change adapters and leave the model as it was", T, float, bf16) {
    LayoutOptions options{.vocabulary = 31, .steps = 0, .heads = 2, .layers = 2};
    options.dropout = kDropout;
    options.stochastic_rounding = sizeof(T) == 2;
    for (const AdapterShape& shape : adapter_shapes(options.config())) {
      options.adapters = shape;
      options.steps = 0;
      const Results before = train_one_rank<T>(2, options);
      options.steps = tiny_shapes() ? 2 : 20;
      const Results after = train_one_rank<T>(2, options);
      for (const auto& [name, values] : after.weights) {
        CAPTURE(name);
        const bool learns = name.find(".lora_") != name.npos || name.ends_with(".ia3_l");
        CHECK(llmc_test::same_bits(values, before.weights.at(name)) == !learns);
      }
    }
  }

  TEST_CASE("20 steps have the losses and the adapters of PEFT") {
    const HuggingFaceConfig stored = adapted_model();
    for (const std::string name : {"lora_c_attn", "lora_all", "lora_rslora", "ia3"}) {
      if (tiny_shapes() && name != "lora_rslora" && name != "ia3") continue;
      const oracle::Fixture fixture((adapter_fixture(name) / "expected.fixture").string());
      const AdapterFiles files(adapter_fixture(name), stored);
      ModelConfig model{.vocabulary = fixture.integer("V"),
                        .context = fixture.integer("T_max"),
                        .layers = fixture.integer("L"),
                        .heads = fixture.integer("NH"),
                        .channels = fixture.integer("C")};
      const std::int64_t B = fixture.integer("B"), T = fixture.integer("T");
      for (const std::string run : {"", "decay."}) {
        if (!fixture.has(run + "losses")) continue;
        CAPTURE(name);
        CAPTURE(run);
        RunShape shape{.B = B, .T = T};
        shape.adapters = files.config().shape;
        ModelRig<float> rig(model, with_frozen(std::move(shape), model, {}));
        load_weights(adapter_fixture("base"), rig.state(), rig.stream());
        for (const AdapterTensor& tensor : files.tensors()) {
          const ParameterSpec& spec = rig.state().table().find(tensor.name);
          rig.state().set_weight(spec, load(files, tensor).data(), rig.stream());
        }
        const auto batch = [&](std::int64_t step) {
          const auto rows = [&](const char* key) {
            const oracle::Ints all = fixture.ints(key);
            return oracle::Ints(all.begin() + step * B * T, all.begin() + (step + 1) * B * T);
          };
          return oracle::Batch{B, T, rows("tokens"), rows("targets"), {}};
        };
        const DoubleVec logits(rig.logits(batch(0)));
        CHECK(relative_l2(logits, fixture.doubles("logits")) <= 2e-6);
        CHECK(relative_l2(logits, fixture.doubles("merged_logits")) <= 2e-6);
        OptimizerOptions options = default_optimizer();
        options.beta1 = fixture.number("beta1");
        options.beta2 = fixture.number("beta2");
        options.eps = fixture.number("eps");
        options.weight_decay = run.empty() ? 0 : fixture.number("weight_decay");
        options.grad_clip = 0;
        const DoubleVec losses = fixture.doubles(run + "losses.fp64");
        const std::int64_t steps = tiny_shapes() ? 2 : fixture.integer("steps");
        for (std::int64_t step = 0; step < steps; ++step) {
          const double loss = rig.gradients_of({batch(step)});
          CHECK(std::abs(loss - losses[step]) <= 2e-6 * losses[step]);
          if (step == 0 && run.empty()) {
            for (const auto& [parameter, gradient] : rig.gradients()) {
              if (!fixture.has("gradient." + parameter)) continue;
              CAPTURE(parameter);
              CHECK(relative_l2(oracle::to_double(gradient),
                                fixture.doubles("gradient." + parameter)) <= 3e-6);
            }
          }
          rig.state().apply_gradients(options, fixture.number("lr"), rig.stream());
        }
        if (steps < fixture.integer("steps")) continue;
        for (const AdapterTensor& tensor : files.tensors()) {
          CAPTURE(tensor.name);
          CHECK(relative_l2(oracle::to_double(rig.weights().at(tensor.name)),
                            fixture.doubles(run + "final." + tensor.name)) <= 1e-5);
        }
      }
    }
  }
}
