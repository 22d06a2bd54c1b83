// The decoder against the definition in fp64 and against the model's own full pass. However a text
// is split into prompt and steps, the logits of every token are those of the whole text.
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/config/model_name.h"
#include "llmc/infer/generate.h"
#include "llmc/models/engine.h"
#include "test/decoder.h"
#include "test/model_rig.h"
#include "test/oracle/gpt2.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

using Ids = std::vector<std::int32_t>;

template <class T>
struct DecoderRig {
  Engine<T> engine;
  Decoder<T> decoder;

  DecoderRig(const Fixture& fixture, const DecoderShape& shape)
      : engine(engine_config(fixture.config()), shape.run_shape()),
        decoder(engine.runner(), shape, engine.memory()) {
    engine.allocate();
    const oracle::Tensors parameters = fixture.parameters();
    for (const ParameterSpec& spec : engine.table().specs()) {
      const auto& values = parameters.at(spec.name);
      const std::vector<float> floats(values.begin(), values.end());
      engine.state().set_weight(spec, floats.data(), engine.stream());
    }
  }

  std::vector<float> logits(std::int64_t b) {
    std::vector<float> values;
    decoder.logits(b, values);
    return values;
  }

  // The logits of one sequence after each token from index prompt - 1 on: (tokens - prompt + 1, V).
  std::vector<double> logits_along(const Ids& tokens, std::int64_t prompt) {
    std::vector<double> all;
    const auto append_logits = [&] {
      for (const float x : logits(0)) all.push_back(static_cast<double>(x));
    };
    decoder.prefill(Ids(tokens.begin(), tokens.begin() + prompt));
    append_logits();
    for (auto at = tokens.begin() + prompt; at != tokens.end(); ++at) {
      decoder.advance({*at});
      append_logits();
    }
    return all;
  }

  Ids greedy(const Ids& prompt, std::int64_t tokens) {
    Ids ids;
    const GenerationOptions options{.tokens = tokens, .sampling = {.temperature = 0}};
    generate(decoder, {prompt}, options, [&](std::int64_t, std::int32_t id) {
      ids.push_back(id);
      return true;
    });
    return ids;
  }
};

oracle::Batch as_batch(const Ids& tokens) {
  return {1, std::ssize(tokens), oracle::Ints(tokens.begin(), tokens.end()), {}, {}};
}

// The logits (T, V) of a whole text, in fp64.
std::vector<double> definition(const Fixture& fixture, const Ids& tokens) {
  return oracle::forward(fixture.config(), fixture.parameters(), as_batch(tokens)).logits;
}

std::vector<double> from_row(const std::vector<double>& logits, std::int64_t row, std::int64_t V) {
  return {logits.begin() + row * V, logits.end()};
}

Ids text_for(const Fixture& fixture) {
  return random_ints(fixture.integer("T_max"), 11, fixture.integer("V"));
}

}  // namespace

TEST_SUITE_BEGIN("infer_decoder");

TEST_CASE_TEMPLATE("a step with the cache computes the logits of the whole text", T, float, bf16,
                   fp16) {
  for (const char* name : {"odd", "head64", "family/all", "family/relu"}) {
    if (tiny_shapes() && std::string(name) == "head64") continue;
    // The fixtures of the family have no tolerance for fp16.
    if (std::string(name).starts_with("family") && std::is_same_v<T, fp16>) continue;
    const Fixture fixture = load_fixture(name);
    const std::int64_t V = fixture.integer("V");
    Ids tokens = text_for(fixture);
    if (tiny_shapes()) tokens.resize(4);
    const auto expected = definition(fixture, tokens);
    RunShape whole{.B = 1, .T = std::ssize(tokens), .training = false};
    ModelRig<T> model(engine_config(fixture.config()), whole);
    model.set_parameters(fixture.parameters());
    const auto full = model.logits(as_batch(tokens));
    // The fixture's tolerance against fp64; twice that between two results that may both err.
    const double tolerance = oracle::allowed_error(fixture, "logits", kDtypeOf<T>);
    for (const std::int64_t prompt : {1, 2, 17}) {
      if (prompt > std::ssize(tokens)) continue;
      CAPTURE(std::string(name));
      CAPTURE(prompt);
      DecoderRig<T> rig(fixture, {1, prompt, std::ssize(tokens)});
      const auto actual = rig.logits_along(tokens, prompt);
      CHECK(relative_l2(actual, from_row(expected, prompt - 1, V)) < tolerance);
      CHECK(relative_l2(actual, from_row(full, prompt - 1, V)) < 2 * tolerance);
    }
  }
}

TEST_CASE("greedy decoding matches the definition") {
  if (tiny_shapes()) return;  // the same kernels as above
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  for (const Ids& prompt : {Ids{5}, Ids{210, 0, 17}, random_ints(9, 4, V)}) {
    Ids tokens = prompt;
    double margin = 1;
    while (std::ssize(tokens) < T_max) {
      auto row = from_row(definition(fixture, tokens), std::ssize(tokens) - 1, V);
      const auto best = std::max_element(row.begin(), row.end());
      tokens.push_back(static_cast<std::int32_t>(best - row.begin()));
      std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
      margin = std::min(margin, row[0] - row[1]);
    }
    REQUIRE(margin > 1e-3);  // larger than the error of fp32
    DecoderRig<float> rig(fixture, {1, std::ssize(prompt), T_max});
    CHECK(rig.greedy(prompt, T_max) == Ids(tokens.begin() + std::ssize(prompt), tokens.end()));
  }
}

TEST_CASE_TEMPLATE("sequences in the same batch do not affect each other", T, float, bf16, fp16) {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t length = tiny_shapes() ? 3 : 12, prompt = 2;
  const Ids a = random_ints(length, 1, 211), b = random_ints(length, 2, 211);
  DecoderRig<T> pair(fixture, {2, prompt, length});
  pair.decoder.prefill({a[0], a[1], b[0], b[1]});
  for (std::int64_t t = prompt; t < length; ++t) {
    pair.decoder.advance({a[t], b[t]});
  }
  const double tolerance = oracle::allowed_error(fixture, "logits", kDtypeOf<T>);
  for (const bool first : {true, false}) {
    DecoderRig<T> single(fixture, {1, prompt, length});
    const auto rows = single.logits_along(first ? a : b, prompt);
    const auto last = from_row(rows, length - prompt, 211);
    CHECK(relative_l2(pair.logits(first ? 0 : 1), last) < 2 * tolerance);
  }
}

TEST_CASE_TEMPLATE("a second prefill resets the decoder, and its results repeat bitwise", T, float,
                   bf16, fp16) {
  const Fixture fixture = load_fixture("odd");
  const Ids tokens = random_ints(tiny_shapes() ? 3 : 20, 3, 211);
  DecoderRig<T> rig(fixture, {1, 2, 24});
  const auto first = rig.logits_along(tokens, 2);
  rig.logits_along(random_ints(5, 9, 211), 1);  // leaves other keys and values in the cache
  CHECK(same_bits(first, rig.logits_along(tokens, 2)));
}

TEST_CASE("generation stops at the context, the requested length or the stop token") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  DecoderRig<float> rig(fixture, {1, 3, 24});
  const Ids prompt = {210, 0, 17};
  const auto run = [&](GenerationOptions options, Ids& ids) {
    options.sampling.temperature = 0;
    ids.clear();
    return generate(rig.decoder, {prompt}, options, [&](std::int64_t, std::int32_t id) {
      ids.push_back(id);
      return true;
    });
  };
  Ids all, ids;
  CHECK(run({.tokens = 1000}, all) == Finish::context);
  CHECK(all.size() == 21);  // with the prompt they fill the context of 24
  CHECK(run({.tokens = 21}, ids) == Finish::length);
  CHECK(ids == all);
  CHECK(run({.tokens = 1}, ids) == Finish::length);
  CHECK(ids == Ids{all[0]});
  const std::int32_t stop = all[4];
  const auto at = std::find(all.begin(), all.end(), stop);
  CHECK(run({.tokens = 1000, .stop = stop}, ids) == Finish::stop);
  CHECK(ids == Ids(all.begin(), at));
}

TEST_CASE("a decoder reserves weights and cache, and no training state") {
  const ModelConfig config = config_from_name("d12");
  const DecoderShape shape{.B = 1, .prompt = 8, .capacity = 1024};
  Engine<bf16> engine(config, shape.run_shape());
  const Decoder<bf16> decoder(engine.runner(), shape, engine.memory());
  const auto bytes = [&](const std::string& name) {
    for (const auto& segment : engine.memory().segments()) {
      if (segment.name == name) return segment.bytes;
    }
    return std::int64_t{0};
  };
  CHECK(bytes("weights") == engine.table().stored_size() * 2);
  CHECK(bytes("key-value cache") == 2LL * 12 * 1024 * 768 * 2);
  for (const char* name : {"gradients", "moments", "master weights", "backward buffers"}) {
    CHECK(bytes(name) == 0);
  }
  CHECK(bytes("activations") < (1 << 20));  // those of one block and 8 tokens, not of twelve blocks
}

TEST_CASE("a decoder rejects inputs that do not fit its shape") {
  const Fixture fixture = load_fixture("odd");
  CHECK_THROWS_WITH_AS(DecoderRig<float>(fixture, {1, 2, 25}), doctest::Contains("context"), Error);
  CHECK_THROWS_WITH_AS(DecoderRig<float>(fixture, {1, 3, 2}), doctest::Contains("prompts of 3"),
                       Error);
  DecoderRig<float> rig(fixture, {1, 2, 3});
  const auto advance = [&] { rig.decoder.advance({1}); };
  CHECK_THROWS_WITH_AS(advance(), doctest::Contains("before prefill"), Error);
  CHECK_THROWS_AS(rig.decoder.prefill({1, 2, 3}), Error);
  CHECK_THROWS_AS(rig.decoder.prefill({}), Error);
  rig.decoder.prefill({1, 2});
  advance();
  CHECK_THROWS_WITH_AS(advance(), doctest::Contains("the cache is full: 3 tokens"), Error);
}

TEST_SUITE_END();
