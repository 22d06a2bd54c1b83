// Generation in batches for tests: a model of a fixture with its generator, and requests.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "llmc/infer/model_pass.h"
#include "llmc/infer/scheduler.h"
#include "llmc/models/engine.h"
#include "test/model_rig.h"
#include "test/oracle/gpt2.h"

namespace llmc_test {

using namespace llmc;
using oracle::Fixture;
using oracle::load_fixture;

using Ids = std::vector<std::int32_t>;

// Tokens and log-probabilities of a sequence.
struct Text {
  Ids ids;
  std::vector<float> log_probabilities;
  Finish finish = Finish::cancelled;

  bool operator==(const Text& other) const {
    return ids == other.ids && finish == other.finish &&
           same_bits(log_probabilities, other.log_probabilities);
  }
};

template <class T, class KV = T>
struct BatchRig {
  Engine<T> engine;
  ModelPass<T, KV> model;
  Scheduler generator;
  std::size_t max_tokens = SIZE_MAX;  // of a text, after which its callback ends it

  // The weights are INT8 if `quantized` has a value.
  BatchRig(const Fixture& fixture, const BatchShape& shape, const SchedulerOptions& options,
           const std::optional<Int8Pass>& quantized = {})
      : engine(engine_config(fixture.config()),
               {.B = 1, .T = 1, .training = false, .int8_weights = quantized.has_value()}),
        model(engine.runner().model(), engine.context(), shape, engine.memory(),
              quantized.value_or(Int8Pass{})),
        generator(model, options, engine.memory()) {
    engine.allocate();
    const oracle::Tensors parameters = fixture.parameters();
    for (const ParameterSpec& spec : engine.table().specs()) {
      const auto& values = parameters.at(spec.name);
      const std::vector<float> floats(values.begin(), values.end());
      engine.state().set_weight(spec, floats.data(), engine.stream());
    }
  }

  std::vector<Text> generate(const std::vector<GenerationRequest>& requests) {
    std::vector<Text> texts(requests.size());
    std::size_t next = 0;
    generator.run({.next = [&]() -> std::optional<GenerationRequest> {
                     if (next == requests.size()) return std::nullopt;
                     return requests[next++];
                   },
                   .on_token =
                       [&](std::int64_t sequence, std::int32_t token, float log_probability) {
                         Text& text = texts[static_cast<std::size_t>(sequence)];
                         text.ids.push_back(token);
                         text.log_probabilities.push_back(log_probability);
                         return text.ids.size() < max_tokens;
                       },
                   .on_finish =
                       [&](std::int64_t sequence, Finish finish) {
                         texts[static_cast<std::size_t>(sequence)].finish = finish;
                       }});
    return texts;
  }
};

inline std::vector<GenerationRequest> random_requests(std::int64_t count, std::int64_t V,
                                                      std::int64_t T_max, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::vector<GenerationRequest> requests;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
    };
    requests.push_back({.prompt = random_ints(1 + below(T_max - 1), bits(), V),
                        .tokens = 1 + below(T_max),
                        .seed = bits() % 3,
                        .sample = static_cast<std::uint32_t>(below(4))});
  }
  return requests;
}

// The options of the tests of equal bits: hot, and with penalties, so that texts differ.
inline SchedulerOptions sampled() {
  SchedulerOptions options;
  options.sampling.temperature = 1.3;
  options.sampling.top_p = 0.95;
  options.sampling.repeat_penalty = 1.1;
  return options;
}

}  // namespace llmc_test
