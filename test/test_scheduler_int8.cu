// Generation with INT8 weights: what shares the batch of a sequence changes no bit of its results,
// and the results are close to those of the float model.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "llmc/infer/scheduler.h"
#include "test/batch_rig.h"

using namespace llmc_test;

namespace {

constexpr Int8Pass kModes[] = {{.quantizes_rows = false},
                               {.quantizes_rows = true},
                               {.quantizes_rows = true, .zero_points = false}};

// The logits after a prompt.
template <class T>
std::vector<float> prompt_logits(const Fixture& fixture, const Ids& prompt,
                                 const std::optional<Int8Pass>& mode) {
  const auto count = static_cast<std::int64_t>(prompt.size());
  BatchRig<T> rig(fixture, {.slots = 1, .capacity = count, .chunk = count}, {}, mode);
  rig.model.clear();
  rig.model.clear_faults(0);
  const auto logits = rig.model.read_prompts({{.slot = 0, .tokens = prompt, .wants_logits = true}});
  std::vector<float> values(static_cast<std::size_t>(fixture.integer("V")));
  copy_to_host(values.data(), logits.data, std::ssize(values), rig.engine.stream());
  rig.engine.stream().synchronize();
  return values;
}

// Bytes of segments of a 124M model in inference.
template <class T>
std::int64_t weight_bytes(bool int8) {
  Engine<T> engine(ModelConfig{}, {.B = 1, .T = 1, .training = false, .int8_weights = int8});
  std::int64_t bytes = 0;
  for (const MemoryPlan::Segment& segment : engine.memory().segments()) {
    if (segment.name.ends_with("weights")) bytes += segment.bytes;
  }
  return bytes;
}

}  // namespace

TEST_SUITE_BEGIN("scheduler_int8");

TEST_CASE_TEMPLATE("with INT8, a sequence has the same bits alone and in any batch, slot and chunk",
                   T, float, bf16, fp16) {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  const std::int64_t count = tiny_shapes() ? 2 : std::getenv("LLMC_LONG") != nullptr ? 200 : 12;
  const std::vector<GenerationRequest> requests = random_requests(count, V, T_max, 5);
  for (const Int8Pass& mode : kModes) {
    if (tiny_shapes() && !mode.zero_points) continue;
    CAPTURE(mode.quantizes_rows);
    CAPTURE(mode.zero_points);
    BatchRig<T> single(fixture, {.slots = 1, .capacity = T_max, .chunk = T_max}, sampled(), mode);
    std::vector<Text> expected;
    for (const GenerationRequest& request : requests)
      expected.push_back(single.generate({request})[0]);
    for (const std::int64_t slots : {2, 5, 16, 64}) {
      for (const std::int64_t chunk : {1, 7, 64}) {
        if (tiny_shapes() && slots * chunk != 14) continue;
        CAPTURE(slots);
        CAPTURE(chunk);
        BatchRig<T> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = chunk}, sampled(),
                        mode);
        CHECK(rig.generate(requests) == expected);
      }
    }
  }
}

TEST_CASE("INT8 changes logits by the size of a rounding of codes") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  double errors[3] = {};
  constexpr int kPrompts = 12;
  for (int i = 0; i < kPrompts; ++i) {
    const Ids prompt = random_ints(9, static_cast<std::uint64_t>(i), fixture.integer("V"));
    const std::vector<float> expected = prompt_logits<float>(fixture, prompt, {});
    for (int mode = 0; mode < 3; ++mode)
      errors[mode] +=
          relative_l2(prompt_logits<float>(fixture, prompt, kModes[mode]), expected) / kPrompts;
  }
  MESSAGE("w8 " << errors[0] << ", w8a8 " << errors[1] << ", symmetric " << errors[2]);
  CHECK(errors[0] > 1e-4);
  CHECK(errors[0] < errors[1]);
  CHECK(errors[1] < errors[2]);
  CHECK(errors[2] < 0.1);
}

TEST_CASE("an input that cannot be quantized ends its sequence, with the layer and the token") {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max");
  BatchRig<float> rig(fixture, {.slots = 2, .capacity = T_max, .chunk = T_max}, {}, kModes[1]);
  // The embedding of position 3 is infinite.
  const ParameterSpec& spec = rig.engine.table().find("wpe.weight");
  std::vector<float> positions(static_cast<std::size_t>(spec.size()));
  positions[3 * static_cast<std::size_t>(spec.shape[1]) + 1] =
      std::numeric_limits<float>::infinity();
  rig.engine.state().set_weight(spec, positions.data(), rig.engine.stream());
  const std::vector<Text> texts =
      rig.generate({{.prompt = {1, 2, 3, 4, 5}, .tokens = 2}, {.prompt = {1, 2}, .tokens = 1}});
  CHECK(texts[0].finish == Finish::not_finite);
  CHECK(texts[1].finish == Finish::length);
  CHECK(rig.generator.fault() == "the input of h.0.attn.c_attn at token 3 is not finite");
}

TEST_CASE("INT8 weights of 124M take at most 0.51 of the bytes of bf16") {
  const auto int8 = static_cast<double>(weight_bytes<bf16>(true));
  const auto half = static_cast<double>(weight_bytes<bf16>(false));
  const auto full = static_cast<double>(weight_bytes<float>(false));
  MESSAGE("INT8 weights: " << int8 / half << " of bf16, " << int8 / full << " of fp32");
  CHECK(int8 <= 0.51 * half);
}

TEST_SUITE_END();
