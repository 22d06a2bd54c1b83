// Generation in batches: what shares the batch of a sequence changes no bit of its results.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "llmc/infer/scheduler.h"
#include "llmc/models/engine.h"
#include "test/batch_rig.h"
#include "test/model_rig.h"
#include "test/oracle/gpt2.h"

using namespace llmc;
using namespace llmc_test;
TEST_SUITE_BEGIN("scheduler");

TEST_CASE_TEMPLATE("a sequence has the same bits alone and in any batch, slot and chunk", T, float,
                   bf16, fp16) {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  const std::int64_t count = tiny_shapes() ? 3 : std::getenv("LLMC_LONG") != nullptr ? 200 : 24;
  const std::vector<GenerationRequest> requests = random_requests(count, V, T_max, 5);
  BatchRig<T> single(fixture, {.slots = 1, .capacity = T_max, .chunk = T_max}, sampled());
  std::vector<Text> expected;
  for (const GenerationRequest& request : requests) {
    expected.push_back(single.generate({request})[0]);
  }
  for (const std::int64_t slots : {2, 5, 16, 64}) {
    for (const std::int64_t chunk : {1, 7, 64}) {
      if (tiny_shapes() && slots > 2) continue;
      CAPTURE(slots);
      CAPTURE(chunk);
      BatchRig<T> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = chunk}, sampled());
      CHECK(rig.generate(requests) == expected);
      std::vector<GenerationRequest> reversed(requests.rbegin(), requests.rend());
      std::vector<Text> reversed_expected(expected.rbegin(), expected.rend());
      CHECK(rig.generate(reversed) == reversed_expected);
    }
  }
}

TEST_CASE("the number of steps between reads changes the number of waits, and no text") {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  std::vector<GenerationRequest> requests = random_requests(tiny_shapes() ? 3 : 13, V, T_max, 6);
  for (std::size_t i = 0; i < requests.size(); i += 3) requests[i].tokens = 2 * T_max;
  for (const bool stops : {false, true}) {
    for (const bool slides : {false, true}) {
      SchedulerOptions options = sampled();
      options.slide = slides;
      // A token of a text, so that texts end within the steps of a read.
      BatchRig<float> free(fixture, {.slots = 1, .capacity = T_max, .chunk = T_max}, options);
      const Ids longest = free.generate({requests[0]})[0].ids;
      if (stops) options.stop = {longest[longest.size() / 2]};
      std::vector<Text> expected;
      for (const std::int64_t slots : {1, 3, 8}) {
        std::int64_t waits = 0;
        for (const std::int64_t steps : {1, 2, 7, 32}) {
          if (tiny_shapes() && (slots != 3 || steps == 2 || steps == 32 || slides)) continue;
          CAPTURE(stops);
          CAPTURE(slides);
          CAPTURE(slots);
          CAPTURE(steps);
          options.steps_between_reads = steps;
          BatchRig<float> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = 8}, options);
          const std::vector<Text> texts = rig.generate(requests);
          if (expected.empty()) expected = texts;
          CHECK(texts == expected);
          if (tiny_shapes()) continue;
          CHECK(rig.generate(requests) == expected);
          CHECK((steps == 1 || rig.generator.reads() < waits || (steps == 32 && slots > 1)));
          waits = rig.generator.reads();
        }
      }
      if (tiny_shapes()) continue;
      const auto ended_by = [&](Finish finish) {
        return std::ranges::count(expected, finish, &Text::finish) > 0;
      };
      CHECK(ended_by(Finish::stop) == stops);
      CHECK(ended_by(Finish::length));
    }
  }
}

TEST_CASE("the host waits once for the steps of a read, and once for the token after a prompt") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max");
  for (const std::int64_t steps : {1, 4, 32}) {
    for (const std::int64_t slots : {1, 5}) {
      SchedulerOptions options = sampled();
      options.steps_between_reads = steps;
      BatchRig<float> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = T_max}, options);
      const std::int64_t tokens = T_max - 2;
      rig.generate(std::vector<GenerationRequest>(static_cast<std::size_t>(slots),
                                                  {.prompt = {1}, .tokens = tokens}));
      CHECK(rig.generator.reads() == 1 + ceil_div(tokens - 1, steps));
    }
  }
}

TEST_CASE("logits that are not finite end their sequence, and no other") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max");
  const Ids good = {210, 0, 17}, bad = {5, 6, 3};
  for (const std::int64_t steps : {1, 7}) {
    SchedulerOptions options = sampled();
    options.steps_between_reads = steps;
    BatchRig<float> rig(fixture, {.slots = 3, .capacity = T_max, .chunk = 4}, options);
    const std::vector<GenerationRequest> healthy(4, {.prompt = good, .tokens = 9});
    const std::vector<Text> expected = rig.generate(healthy);
    // A row of the embeddings of positions becomes NaN.
    const auto positions = oracle::Tensors(fixture.parameters()).at("wpe.weight");
    std::vector<float> damaged(positions.begin(), positions.end());
    const std::int64_t T = T_max - 5;  // the position with a damaged embedding
    const std::int64_t C = fixture.integer("C");
    std::fill_n(damaged.begin() + T * C, C, NAN);
    for (const ParameterSpec& spec : rig.engine.table().specs()) {
      if (spec.name != "wpe.weight") continue;
      rig.engine.state().set_weight(spec, damaged.data(), rig.engine.stream());
    }
    std::vector<GenerationRequest> requests = healthy;
    requests.insert(requests.begin() + 1, {.prompt = bad, .tokens = 1000});
    const std::vector<Text> texts = rig.generate(requests);
    CHECK(texts[1].finish == Finish::not_finite);
    CHECK(std::ssize(texts[1].ids) == T + 1 - std::ssize(bad));
    for (const std::size_t i : {0, 2, 3, 4}) CHECK(texts[i] == expected[0]);
  }
}

TEST_CASE("a text that its reader ends has no more tokens, and its slot the next text") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max");
  SchedulerOptions options = sampled();
  std::vector<Text> expected;
  for (const std::int64_t steps : {1, 5, 32}) {
    options.steps_between_reads = steps;
    BatchRig<float> rig(fixture, {.slots = 2, .capacity = T_max, .chunk = 4}, options);
    rig.max_tokens = 3;
    const std::vector<Text> texts =
        rig.generate(random_requests(7, fixture.integer("V"), T_max, 9));
    if (expected.empty()) expected = texts;
    CHECK(texts == expected);
    for (const Text& text : texts) CHECK(text.ids.size() <= 3);
  }
}

TEST_CASE("texts end at the requested length, the context or the stop token") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max");
  const BatchShape shape{.slots = 3, .capacity = T_max, .chunk = 8};
  SchedulerOptions options;
  options.sampling.temperature = 0;
  const Ids prompt = {210, 0, 17};
  BatchRig<float> rig(fixture, shape, options);
  const auto texts = rig.generate({{.prompt = prompt, .tokens = 1000},
                                   {.prompt = prompt, .tokens = 5},
                                   {.prompt = prompt, .tokens = 1},
                                   {.prompt = prompt, .tokens = T_max - 3}});
  CHECK(std::ssize(texts[0].ids) == T_max - 3);
  CHECK(texts[0].finish == Finish::context);
  CHECK(texts[1].ids == Ids(texts[0].ids.begin(), texts[0].ids.begin() + 5));
  CHECK(texts[1].finish == Finish::length);
  CHECK(texts[2].ids == Ids{texts[0].ids[0]});
  CHECK(texts[3].ids == texts[0].ids);
  CHECK(texts[3].finish == Finish::length);
  options.stop = {texts[0].ids[4]};
  BatchRig<float> stopping(fixture, shape, options);
  const Text stopped = stopping.generate({{.prompt = prompt, .tokens = 1000}})[0];
  CHECK(stopped.finish == Finish::stop);
  CHECK(stopped.ids == Ids(texts[0].ids.begin(),
                           std::find(texts[0].ids.begin(), texts[0].ids.end(), options.stop[0])));
}

TEST_CASE("each of several stop tokens ends a text, in every batch and for any steps") {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max"), V = fixture.integer("V");
  const std::vector<GenerationRequest> requests =
      random_requests(tiny_shapes() ? 3 : 9, V, T_max, 6);
  const BatchShape one = {.slots = 1, .capacity = T_max, .chunk = T_max};
  const std::vector<Text> free = BatchRig<float>(fixture, one, sampled()).generate(requests);
  // Tokens of three texts.
  const std::vector<std::int32_t> stop = {free[0].ids[1], free[1].ids[2], free[2].ids[0]};
  std::vector<Text> expected = free;
  for (Text& text : expected) {
    const auto end = std::ranges::find_first_of(text.ids, stop);
    if (end == text.ids.end()) continue;
    text.ids.erase(end, text.ids.end());
    text.finish = Finish::stop;
  }
  CHECK(std::ranges::count(expected, Finish::stop, &Text::finish) >= 3);
  for (const std::int64_t slots : {1, 3}) {
    for (const std::int64_t steps : {1, 7}) {
      SchedulerOptions options = sampled();
      options.stop = stop;
      options.steps_between_reads = steps;
      BatchRig<float> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = 8}, options);
      const std::vector<Text> texts = rig.generate(requests);
      REQUIRE(texts.size() == expected.size());
      for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(texts[i].ids == expected[i].ids);
        CHECK(texts[i].finish == expected[i].finish);
      }
    }
  }
}

TEST_CASE("tokens outside the vocabulary are never drawn") {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max"), V = fixture.integer("V");
  const std::vector<GenerationRequest> requests = random_requests(3, V / 2, T_max, 6);
  for (const double temperature : {0.0, 1.0, 100.0}) {
    SchedulerOptions options;
    options.sampling.temperature = temperature;
    const BatchShape shape = {.slots = 2, .capacity = T_max, .chunk = 8};
    const auto largest = [&] {
      std::int32_t id = 0;
      for (const Text& text : BatchRig<float>(fixture, shape, options).generate(requests)) {
        for (const std::int32_t drawn : text.ids) id = std::max(id, drawn);
      }
      return id;
    };
    CHECK(largest() >= V / 2);
    options.vocabulary = V / 2;
    CHECK(largest() < V / 2);
  }
}

TEST_CASE("at the end of the context, a sliding text continues from its last half") {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max"), half = T_max / 2;
  SchedulerOptions options;
  options.sampling.temperature = 0;
  options.slide = true;
  BatchRig<float> rig(fixture, {.slots = 2, .capacity = T_max, .chunk = 5}, options);
  const Ids prompt = {210, 0, 17};
  const Text text = rig.generate({{.prompt = prompt, .tokens = 3 * T_max}})[0];
  CHECK(text.finish == Finish::length);
  REQUIRE(std::ssize(text.ids) == 3 * T_max);
  Ids all = prompt;
  all.insert(all.end(), text.ids.begin(), text.ids.end());
  // The tokens after the first slide are those of a text whose prompt is the last half.
  const Ids last_half(all.begin() + T_max - half, all.begin() + T_max);
  const Text again = rig.generate({{.prompt = last_half, .tokens = T_max - half}})[0];
  CHECK(again.ids == Ids(all.begin() + T_max, all.begin() + 2 * T_max - half));
}

TEST_CASE_TEMPLATE("a batch of ragged sequences computes the definition", T, float, bf16, fp16) {
  if (tiny_shapes()) return;
  const Fixture fixture = load_fixture("odd");
  const std::int64_t V = fixture.integer("V"), T_max = fixture.integer("T_max");
  SchedulerOptions options;
  options.sampling.temperature = 2;
  BatchRig<T> rig(fixture, {.slots = 4, .capacity = T_max, .chunk = 7}, options);
  const std::vector<GenerationRequest> requests = random_requests(9, V, T_max, 8);
  const std::vector<Text> texts = rig.generate(requests);
  const double tolerance = oracle::allowed_error(fixture, "logits", kDtypeOf<T>);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Ids tokens = requests[i].prompt;
    tokens.insert(tokens.end(), texts[i].ids.begin(), texts[i].ids.end());
    const auto logits =
        oracle::forward(fixture.config(), fixture.parameters(),
                        {1, std::ssize(tokens), oracle::Ints(tokens.begin(), tokens.end()), {}, {}})
            .logits;
    double rms = 0;
    for (const double x : logits) rms += x * x / static_cast<double>(logits.size());
    for (std::size_t t = 0; t < texts[i].ids.size(); ++t) {
      const auto row =
          logits.begin() + static_cast<std::ptrdiff_t>((requests[i].prompt.size() + t - 1) *
                                                       static_cast<std::size_t>(V));
      double sum = 0;
      for (std::int64_t v = 0; v < V; ++v) sum += std::exp(row[v]);
      const double expected = row[texts[i].ids[t]] - std::log(sum);
      // Both the logit and the logarithm of the sum may err by a few times the typical error.
      CHECK(std::fabs(static_cast<double>(texts[i].log_probabilities[t]) - expected) <
            10 * tolerance * std::sqrt(rms) + 1e-6);
    }
  }
}

TEST_CASE("a step is at most 5 L + 3 launches") {
  if (tiny_shapes()) return;
  struct Counter : LaunchObserver {
    std::int64_t launches = 0;
    void on_launch(const void*, int, std::size_t) override { ++launches; }
    void on_library_call(const char*) override { ++launches; }
  };
  const Fixture fixture = load_fixture("odd");
  const std::int64_t T_max = fixture.integer("T_max"), L = fixture.integer("L");
  for (const std::int64_t slots : {1, 8}) {
    BatchRig<float> rig(fixture, {.slots = slots, .capacity = T_max, .chunk = 8}, sampled());
    Counter counter;
    std::vector<GenerationRequest> requests(static_cast<std::size_t>(slots),
                                            {.prompt = {1}, .tokens = 5});
    rig.generate(requests);  // records the graph
    rig.engine.stream().observe(&counter);
    const Ids token(static_cast<std::size_t>(slots), 1);
    Tensor<std::int32_t, 1> ids;
    Buffer<std::int32_t> memory(slots);
    copy_to_device(memory.data(), token.data(), slots, rig.engine.stream());
    ids = make_tensor(memory.data(), slots);
    rig.model.step(ids, ids);
    rig.engine.stream().observe(nullptr);
    CHECK(counter.launches + 1 <= 5 * L + 3);  // sampling is one more
    CHECK(rig.generator.graph_nodes() <= 5 * L + 3);
    CHECK(rig.generator.graph_nodes() == counter.launches + 1);
  }
}

TEST_SUITE_END();
