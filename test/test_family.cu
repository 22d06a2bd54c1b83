// Models of GPT-2's family that differ from it in one property, in two, or in all: the engine
// against PyTorch's results (test/oracle/family.h).
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/pretrained.h"
#include "test/model_rig.h"
#include "test/oracle/family.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Comparison;
using oracle::Fixture;

namespace {

RunShape shape_of(const Fixture& fixture, Attention attention) {
  RunShape run{.B = fixture.integer("B"), .T = fixture.integer("T")};
  run.attention = attention;
  return run;
}

void check_comparisons(const std::string& name, const std::vector<Comparison>& comparisons) {
  for (const Comparison& c : comparisons) CHECK_MESSAGE(c.ok(), name << ": " << describe(c));
}

// Without the fixtures of two properties on tiny shapes.
std::vector<std::string> family_cases_here() {
  std::vector<std::string> names = oracle::family_cases();
  if (tiny_shapes()) std::erase_if(names, [](const std::string& n) { return contains(n, "-"); });
  return names;
}

ModelConfig family_config() {
  return {.vocabulary = 29, .context = 8, .layers = 2, .heads = 2, .channels = 16};
}

}  // namespace

TEST_SUITE("family") {
  TEST_CASE_TEMPLATE("logits and gradients of each kind of model match PyTorch", T, float, bf16) {
    for (const std::string& name : family_cases_here()) {
      if (sizeof(T) < 4 && contains(name, "-")) continue;
      const Fixture fixture = oracle::load_family_fixture(name);
      ModelRig<T> rig(engine_config(fixture.config()), shape_of(fixture, Attention::flash));
      rig.set_parameters(fixture.parameters());
      check_comparisons(name, compare_logits(fixture, rig.logits(fixture.batch()), kDtypeOf<T>));
      if (!oracle::has_gradients(fixture)) continue;
      rig.gradients_of({fixture.batch()});
      check_comparisons(name, compare_gradients(fixture, rig.gradients(), kDtypeOf<T>));
    }
  }

  TEST_CASE("standard attention has the scales of the model too") {
    for (const char* name : {"unscaled", "by_layer", "all"}) {
      const Fixture fixture = oracle::load_family_fixture(name);
      ModelRig<float> rig(engine_config(fixture.config()), shape_of(fixture, Attention::standard));
      rig.set_parameters(fixture.parameters());
      rig.gradients_of({fixture.batch()});
      check_comparisons(name, compare_gradients(fixture, rig.gradients(), Dtype::fp32));
    }
  }

  TEST_CASE("a head that is not tied is a parameter of its own, after all others") {
    ModelConfig config = family_config();
    const ParameterTable tied = gpt2_parameters(config);
    config.tied_head = false;
    const ParameterTable table = gpt2_parameters(config);
    CHECK(tied.head().name == "wte.weight");
    CHECK(tied.tied_head());
    CHECK(table.head().name == "lm_head.weight");
    CHECK_FALSE(table.tied_head());
    REQUIRE(table.specs().size() == tied.specs().size() + 1);
    for (std::size_t i = 0; i < tied.specs().size(); ++i) {
      CHECK(table.specs()[i].name == tied.specs()[i].name);
      CHECK(table.specs()[i].id == tied.specs()[i].id);  // equal random weights
    }
    CHECK(table.head().block == config.layers + 2);
    CHECK(table.head().part.stored_rows == 128);
    CHECK(table.head().weight_decay);
    // Only the matrix of the logits is multiplied.
    CHECK(table.find("wte.weight").flops_per_token() == 0);
    CHECK(table.head().flops_per_token() == tied.find("wte.weight").flops_per_token());
  }

  TEST_CASE("the weights of a head that is not tied are on the last pipeline rank only") {
    ModelConfig config = family_config();
    config.tied_head = false;
    const RunShape shape{.pipeline = make_pipeline({.ranks = 2, .micro_batches = 2}, 2)};
    for (const int rank : {0, 1}) {
      const ParameterTable table = gpt2_parameters(config, {.pipeline_rank = rank}, shape);
      CHECK(table.find("wte.weight").is_held == (rank == 0));
      CHECK(table.head().is_held == (rank == 1));
      CHECK(table.head().first_holder == 1);
    }
  }

  TEST_CASE("a config survives the way to transformers and back") {
    ModelConfig config = family_config();
    CHECK(from_huggingface(to_huggingface(config, {}), "") == config);
    CHECK(differences_from_gpt2(to_huggingface(config, {})).empty());
    config.inner = 48;
    config.activation = Activation::relu;
    config.norm_epsilon = 1e-6;
    config.scale_attention = false;
    config.scale_attention_by_layer = true;
    config.tied_head = false;
    const HuggingFaceConfig saved = to_huggingface(config, 3);
    const HuggingFaceConfig read =
        parse_huggingface_config(huggingface_config_text(saved, TensorDtype::f32), "c");
    CHECK(from_huggingface(read, "") == config);
    CHECK(differences_from_gpt2(read) ==
          "layer_norm_epsilon 1e-06, n_inner 48, activation_function relu, scale_attn_weights "
          "false, scale_attn_by_inverse_layer_idx true, tie_word_embeddings false");
  }

  TEST_CASE("properties that the engine does not support are errors") {
    const auto message = [](auto change) {
      HuggingFaceConfig config = to_huggingface(family_config(), {});
      change(config);
      return complaint([&] { from_huggingface(config, "dir"); });
    };
    CHECK(contains(message([](auto& c) { c.n_inner = 24; }), "dir: n_inner is 24"));
    CHECK(contains(message([](auto& c) { c.n_inner = 65552; }), "at most 65536"));
    CHECK(contains(message([](auto& c) { c.layer_norm_epsilon = 1e-60; }), "layer_norm_epsilon"));
    CHECK(message([](auto& c) { c.n_inner = 65536; }).empty());
  }
}
