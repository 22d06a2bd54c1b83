// The oracle of GPT-2s with other properties than those of OpenAI's models, against finite
// differences and against PyTorch's fp64 results.

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "llmc/device/device.h"
#include "test/oracle/compare.h"
#include "test/oracle/family.h"
#include "test/oracle/finite_difference.h"
#include "test/oracle/gpt2.h"
#include "test/oracle/ops.h"
#include "test/oracle/quantized_gpt2.h"
#include "test/support.h"

using namespace llmc::oracle;

namespace {

constexpr Activation kActivations[] = {Activation::gelu, Activation::gelu_new,
                                       Activation::gelu_pytorch_tanh, Activation::relu};

Vec normal_values(Index n, std::uint64_t seed, double scale = 1.0) {
  return to_double(llmc_test::random_floats(n, seed, scale));
}

// A model in which every property differs from that of OpenAI's models.
Config unusual_config(Activation activation) {
  return {.T_max = 5,
          .V = 11,
          .L = 3,
          .NH = 3,
          .C = 6,
          .activation = activation,
          .inner = 7,
          .norm_epsilon = 0.3,
          .scale_attention = false,
          .scale_attention_by_layer = true,
          .tied_head = false};
}

Tensors unusual_parameters(const Config& config) {
  Tensors p;
  std::uint64_t seed = 10;
  for (const NamedShape& s : parameter_shapes(config)) {
    p[s.name] = normal_values(element_count(s.shape), seed++, 0.4);
  }
  return p;
}

Batch small_batch() {
  return {2, 4, {1, 10, 1, 3, 0, 5, 5, 2}, {10, 1, 3, 3, 5, 5, 2, 0}, {}};
}

// For each property that a config does not share with OpenAI's models, the config without it.
std::vector<Config> without_one_property(const Config& config) {
  const Config plain;
  std::vector<Config> all;
  const auto add = [&](auto member) {
    if (config.*member == plain.*member) return;
    all.push_back(config);
    all.back().*member = plain.*member;
  };
  add(&Config::activation);
  add(&Config::norm_epsilon);
  add(&Config::scale_attention);
  add(&Config::scale_attention_by_layer);
  add(&Config::tied_head);
  return all;
}

// The number of properties that the config does not share with OpenAI's models.
std::size_t count_properties(const Config& config) {
  return without_one_property(config).size() + (config.inner.has_value() ? 1 : 0);
}

Tensors gradients_of(const Fixture& fixture) {
  const Config config = fixture.config();
  const Tensors p = fixture.parameters();
  return backward(config, p, fixture.batch(), forward(config, p, fixture.batch()));
}

}  // namespace

TEST_SUITE("oracle_family") {
  TEST_CASE("activation functions have the values of their definitions") {
    // x * Phi(x), from a table of the normal distribution.
    const Vec x = {-3, -1, 0, 1, 3};
    const Vec expected = {-3 * 0.0013498980316300946, -0.15865525393145705, 0, 0.8413447460685429,
                          3 * 0.9986501019683699};
    CHECK(relative_l2(activation_forward(Activation::gelu, x), expected) < 1e-15);
    CHECK(activation_forward(Activation::gelu, {-12})[0] ==
          doctest::Approx(-12 * 1.7764821120776816e-33).epsilon(1e-12));
    CHECK(activation_forward(Activation::relu, x) == Vec{0, 0, 0, 1, 3});
    CHECK(activation_backward(Activation::relu, {1, 1, 1, 2, 2}, x) == Vec{0, 0, 0, 2, 2});
    CHECK(activation_forward(Activation::gelu_new, x) == gelu_forward(x));
    CHECK(activation_forward(Activation::gelu_pytorch_tanh, x) == gelu_forward(x));
    const double difference = relative_l2(gelu_forward(x), activation_forward(Activation::gelu, x));
    CHECK(difference > 1e-5);
    CHECK(difference < 1e-3);
  }

  TEST_CASE("gradients of activation functions match finite differences") {
    for (const Activation kind : kActivations) {
      Vec x = {-30, -4, -1, -0.1, 0.3, 1, 2.5, 30};
      const Vec d_y = normal_values(static_cast<Index>(x.size()), 1);
      const auto f = [&] { return dot(activation_forward(kind, x), d_y); };
      CHECK(gradient_error(activation_backward(kind, d_y, x), x, f) < kDifferenceTolerance);
    }
  }

  TEST_CASE("attention with another scale matches attention with scaled queries") {
    const Index B = 2, T = 5, NH = 3, HS = 4, C = NH * HS;
    Vec qkv = normal_values(B * T * 3 * C, 1);
    const Vec d_out = normal_values(B * T * C, 2);
    for (const double scale : {1.0, 0.5 / 3}) {
      const Attention scaled = attention_forward(qkv, B, T, NH, HS, {}, {}, 0, scale);
      Vec same = qkv;
      for (Index row = 0; row < B * T; ++row) {
        for (Index c = 0; c < C; ++c) same[row * 3 * C + c] *= scale * std::sqrt(HS);
      }
      const Attention expected = attention_forward(same, B, T, NH, HS);
      CHECK(relative_l2(scaled.out, expected.out) < 1e-14);
      CHECK(relative_l2(scaled.log_sum_exp, expected.log_sum_exp) < 1e-14);
      const auto f = [&] {
        return dot(attention_forward(qkv, B, T, NH, HS, {}, {}, 0, scale).out, d_out);
      };
      const Vec d_qkv = attention_backward(d_out, qkv, B, T, NH, HS, {}, {}, 0, scale);
      CHECK(gradient_error(d_qkv, qkv, f) < kDifferenceTolerance);
    }
  }

  TEST_CASE("gradients of a model with all properties match finite differences") {
    for (const Activation activation : kActivations) {
      const Config config = unusual_config(activation);
      Tensors p = unusual_parameters(config);
      const Batch batch = small_batch();
      const auto f = [&] { return mean_loss(config, p, batch); };
      const Tensors d = backward(config, p, batch, forward(config, p, batch));
      REQUIRE(d.size() == p.size());
      for (auto& [name, values] : p) {
        CHECK_MESSAGE(gradient_error(d.at(name), values, f) < 1e-8, name);
      }
    }
  }

  TEST_CASE("the fixtures have each property, each pair of properties and all of them") {
    std::map<std::size_t, int> cases;
    for (const std::string& name : family_cases()) {
      const Fixture fixture = load_family_fixture(name);
      ++cases[count_properties(fixture.config())];
      CHECK(has_gradients(fixture) == (name.find('-') == name.npos && name != "tanh"));
    }
    // Seven values of six properties, and gelu_pytorch_tanh. gelu and relu exclude each other.
    CHECK(cases == std::map<std::size_t, int>{{1, 8}, {2, 20}, {6, 1}});
  }

  TEST_CASE("loss, logits and gradients of the family match PyTorch's in fp64") {
    for (const std::string& name : family_cases()) {
      const Fixture fixture = load_family_fixture(name);
      const Tensors p = fixture.parameters();
      const Activations a = forward(fixture.config(), p, fixture.batch());
      const Tensors d = backward(fixture.config(), p, fixture.batch(), a);
      const double loss = fixture.number("loss");
      CHECK_MESSAGE(a.classifier.loss == doctest::Approx(loss).epsilon(1e-13), name);
      CHECK_MESSAGE(compare_logits(fixture, a.logits, llmc::Dtype::fp32)[0].error < 1e-13, name);
      const Vec norms = fixture.doubles("gradient_norms");
      const std::vector<NamedShape> shapes = fixture.shapes();
      REQUIRE(shapes.size() == norms.size());
      for (std::size_t i = 0; i < norms.size(); ++i) {
        CHECK_MESSAGE(norm(d.at(shapes[i].name)) == doctest::Approx(norms[i]).epsilon(1e-11),
                      name << " " << shapes[i].name);
      }
      if (!has_gradients(fixture)) continue;
      for (const Comparison& c : compare_gradients(fixture, d, llmc::Dtype::fp32)) {
        CHECK_MESSAGE(c.error < 1e-7, name << " " << describe(c));  // stored in fp32
        CHECK_MESSAGE(c.ok(), name << " " << describe(c));
      }
    }
  }

  TEST_CASE("each property of the fixtures changes the logits by more than fp32 rounding") {
    for (const std::string& name : family_cases()) {
      const Fixture fixture = load_family_fixture(name);
      for (const Config& config : without_one_property(fixture.config())) {
        if (config.activation == Activation::gelu_new && name == "tanh") continue;
        const Vec logits = forward(config, fixture.parameters(), fixture.batch()).logits;
        const Comparison c = compare_logits(fixture, logits, llmc::Dtype::fp32)[0];
        CHECK_MESSAGE(c.error > 30 * c.allowed_error, name << " " << describe(c));
      }
    }
  }

  TEST_CASE("the parameter tables of the family match PyTorch's names, shapes and order") {
    std::set<std::size_t> counts;
    for (const std::string& name : family_cases()) {
      const Fixture fixture = load_family_fixture(name);
      const std::vector<NamedShape> expected = fixture.shapes();
      const std::vector<NamedShape> actual = parameter_shapes(fixture.config());
      REQUIRE(actual.size() == expected.size());
      counts.insert(actual.size());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        CHECK_MESSAGE(actual[i].name == expected[i].name, name);
        CHECK_MESSAGE(actual[i].shape == expected[i].shape, name << " " << actual[i].name);
      }
    }
    CHECK(counts.size() == 2);  // tied and untied
  }

  TEST_CASE("a quantized model without rounding equals the model, with all properties") {
    const Fixture fixture = load_family_fixture("all");
    const QuantizedGpt2 model(fixture.config(), fixture.parameters(),
                              [](const std::string&, const Vec& x, Index, Index) {
                                return ProductInput{x, Vec(x.size(), 1.0)};
                              });
    Tensors d = zeros_like_parameters(fixture.config());
    CHECK(model.loss_and_gradients(fixture.batch(), d) ==
          doctest::Approx(fixture.number("loss")).epsilon(1e-13));
    for (const auto& [name, gradient] : gradients_of(fixture)) {
      CHECK_MESSAGE(relative_l2(d.at(name), gradient) < 1e-13, name);
    }
  }

  TEST_CASE("the error names the unknown activation function of a fixture") {
    std::ifstream in(family_dir() + "/gelu.fixture", std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    std::string content = bytes.str();
    const std::string line = "text activation ";
    content.replace(content.find(line) + line.size(), 4, "silu");
    const llmc_test::TemporaryDirectory folder;
    std::ofstream(folder.file("other.fixture"), std::ios::binary) << content;
    CHECK_THROWS_WITH_AS(Fixture(folder.file("other.fixture")).config(), doctest::Contains("silu"),
                         llmc::Error);
  }
}
