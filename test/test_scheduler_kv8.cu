// Generation over an INT8 key-value cache: what shares the batch of a sequence changes no bit of
// its results, the results are close to those over a cache of floats, and the cache is small.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <vector>

#include "llmc/infer/scheduler.h"
#include "test/batch_rig.h"
#include "test/decoder.h"

using namespace llmc_test;

namespace {

template <class T>
void check_independence(const std::optional<Int8Pass>& mode) {
  using Rig = BatchRig<T, std::int8_t>;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  const std::int64_t count = tiny_shapes() ? 3 : std::getenv("LLMC_LONG") != nullptr ? 200 : 18;
  const std::vector<GenerationRequest> requests = random_requests(count, V, T_max, 5);
  Rig single(fixture, {.slots = 1, .capacity = T_max, .chunk = T_max}, sampled(), mode);
  std::vector<Text> expected;
  for (const GenerationRequest& request : requests)
    expected.push_back(single.generate({request})[0]);
  for (const std::int64_t slots : {2, 5, 16}) {
    for (const std::int64_t chunk : {1, 7, 64}) {
      if (tiny_shapes() && slots * chunk != 14) continue;
      CAPTURE(slots);
      CAPTURE(chunk);
      Rig rig(fixture, {.slots = slots, .capacity = T_max, .chunk = chunk}, sampled(), mode);
      CHECK(rig.generate(requests) == expected);
      std::vector<GenerationRequest> reversed(requests.rbegin(), requests.rend());
      CHECK(rig.generate(reversed) == std::vector<Text>(expected.rbegin(), expected.rend()));
    }
  }
}

// The logits of a prompt's last token, and of ten tokens that follow.
template <class T, class KV>
std::vector<float> decoded_logits(const Fixture& fixture, const Ids& tokens) {
  constexpr std::int64_t kSteps = 10;
  const std::int64_t prompt = std::ssize(tokens) - kSteps;
  const DecoderShape shape{.B = 1, .prompt = prompt, .capacity = std::ssize(tokens)};
  Engine<T> engine(engine_config(fixture.config()), shape.run_shape());
  Decoder<T, KV> decoder(engine.runner(), shape, engine.memory());
  engine.allocate();
  const oracle::Tensors parameters = fixture.parameters();
  for (const ParameterSpec& spec : engine.table().specs()) {
    const auto& values = parameters.at(spec.name);
    const std::vector<float> floats(values.begin(), values.end());
    engine.state().set_weight(spec, floats.data(), engine.stream());
  }
  decoder.prefill(Ids(tokens.begin(), tokens.begin() + prompt));
  std::vector<float> all, logits;
  for (std::int64_t i = prompt; i <= std::ssize(tokens); ++i) {
    decoder.logits(0, logits);
    all.insert(all.end(), logits.begin(), logits.end());
    if (i < std::ssize(tokens)) decoder.advance({tokens[static_cast<std::size_t>(i)]});
  }
  return all;
}

// Bytes of the cache of a 124M model, in the memory plan and per token.
template <class KV>
std::int64_t cache_bytes() {
  constexpr std::int64_t kSlots = 3, kTokens = 100;
  Engine<bf16> engine(ModelConfig{}, {.B = 1, .T = 1, .training = false});
  ModelPass<bf16, KV> model(engine.runner().model(), engine.context(),
                            {.slots = kSlots, .capacity = kTokens}, engine.memory());
  std::int64_t bytes = 0;
  for (const MemoryPlan::Segment& segment : engine.memory().segments()) {
    if (segment.name == "key-value cache") bytes += segment.bytes;
  }
  const std::int64_t numbers = kSlots * kTokens * model.cache_bytes_per_token();
  CHECK(bytes >= numbers);
  CHECK(bytes <= numbers + 4 * 256);  // tensors start at multiples of 256 bytes
  return model.cache_bytes_per_token();
}

}  // namespace

TEST_SUITE_BEGIN("scheduler_kv8");

TEST_CASE_TEMPLATE(
    "with an INT8 cache, a sequence has the same bits alone and in any batch, slot and chunk", T,
    float, bf16, fp16) {
  check_independence<T>({});
}

TEST_CASE("with INT8 weights, activations and cache, a sequence has the same bits in any batch") {
  check_independence<bf16>(Int8Pass{.quantizes_rows = true});
}

TEST_CASE("an INT8 cache changes logits by the size of a rounding of codes") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  double error = 0;
  constexpr int kTexts = 8;
  for (int i = 0; i < kTexts; ++i) {
    const Ids tokens = random_ints(fixture.integer("T_max") - 1, static_cast<std::uint64_t>(i),
                                   fixture.integer("V"));
    error += relative_l2(decoded_logits<float, std::int8_t>(fixture, tokens),
                         decoded_logits<float, float>(fixture, tokens)) /
             kTexts;
  }
  MESSAGE("relative error of the logits " << error);
  CHECK(error > 1e-4);
  CHECK(error < 0.02);
}

TEST_CASE("an INT8 cache takes at most 0.54 of the bytes of a bf16 cache") {
  const auto int8 = static_cast<double>(cache_bytes<std::int8_t>());
  CHECK(int8 <= 0.54 * static_cast<double>(cache_bytes<bf16>()));
}

TEST_SUITE_END();
