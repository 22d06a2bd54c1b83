// Sampling on the device against its definition in fp64 (host_sampling.h): sets of kept tokens,
// distributions, log-probabilities, and how slots finish.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/host_sampling.h"
#include "test/sampling_rig.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using namespace llmc_test::sampling_rig;

// Each option alone, then all of them. The penalties and biases are exact in fp32 if the logits are
// multiples of 1/64.
std::vector<SamplingOptions> all_options() {
  SamplingOptions all{.temperature = 0.8,
                      .top_k = 30,
                      .top_p = 0.9,
                      .min_p = 0.02,
                      .typical = 0.95,
                      .repeat_penalty = 1.25,
                      .presence_penalty = 0.25,
                      .frequency_penalty = 0.5,
                      .repeat_last_n = 5};
  return {{},
          {.temperature = 0.7},
          {.temperature = 1.5},
          {.top_k = 5},
          {.top_p = 0.8},
          {.min_p = 0.1},
          {.typical = 0.7},
          {.repeat_penalty = 2, .repeat_last_n = -1},
          {.presence_penalty = 0.5, .frequency_penalty = 0.25, .repeat_last_n = 3},
          all};
}

double log_softmax(const std::vector<float>& logits, std::int32_t id) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return logits[id] - max - std::log(sum);
}

TEST_SUITE("sampling") {
  TEST_CASE("filters keep the tokens of the definition, and the draw takes the same one") {
    const std::vector<std::int64_t> sizes = tiny_shapes()
                                                ? std::vector<std::int64_t>{1, 7, 257}
                                                : std::vector<std::int64_t>{1, 7, 257, 50257};
    int draws = 0, other_tokens = 0;
    for (const std::int64_t V : sizes) {
      for (const float step : {0.0f, 0.5f, 2.0f}) {
        std::vector<Sequence> sequences;
        for (const SamplingOptions& options : all_options()) {
          Sequence s{random_logits(V, V + sequences.size(), step), options};
          s.history = random_ints(9, 3, std::min<std::int64_t>(V, 4));
          s.sample = static_cast<std::uint32_t>(sequences.size());
          sequences.push_back(s);
        }
        const Outcome out = sample(sequences);
        for (std::size_t r = 0; r < sequences.size(); ++r) {
          CAPTURE(V);
          CAPTURE(step);
          CAPTURE(r);
          const ReferenceSample expected = sequences[r].reference();
          CHECK(out.kept(r, V) == expected.ids);
          ++draws;
          other_tokens += out.drawn[r] != expected.token ? 1 : 0;
          CHECK(std::fabs(out.log_probability[r] - log_softmax(sequences[r].logits, out.drawn[r])) <
                2e-6);
        }
      }
    }
    CHECK(draws >= 90);
    CHECK(other_tokens == 0);
  }

  TEST_CASE("draws follow the distribution of the definition") {
    // Pearson's statistic over tokens with an expected count of at least 5, as a standard normal
    // number (Wilson and Hilferty, 1931). Above 4: p < 3.2e-5. The seed is fixed. Rounding may move
    // a draw across a boundary with a probability of about 1e-6, so 5 draws of all may differ from
    // the definition.
    constexpr std::int64_t kV = 50;
    const std::int64_t draws = tiny_shapes() ? 500 : 50000;
    int other_tokens = 0;
    const std::vector<SamplingOptions> all = all_options();
    for (std::size_t i = 0; i < all.size(); i += tiny_shapes() ? 4 : 1) {
      const SamplingOptions& options = all[i];
      Sequence s{random_logits(kV, 8, 1.0f / 64), options, {1, 2, 3, 2, 1, 2}};
      std::vector<Sequence> sequences(draws, s);
      for (std::int64_t r = 0; r < draws; ++r) sequences[r].sample = static_cast<std::uint32_t>(r);
      const Outcome out = sample(sequences, {.T_max = 8});
      const ReferenceSample expected = s.reference();
      std::vector<double> count(kV, 0), probability(kV, 0);
      for (std::size_t k = 0; k < expected.ids.size(); ++k)
        probability[expected.ids[k]] = expected.probabilities[k];
      std::vector<double> upper(kV);
      std::partial_sum(probability.begin(), probability.end(), upper.begin());
      for (std::int64_t r = 0; r < draws; ++r) {
        const std::int32_t id = out.drawn[r];
        REQUIRE(id >= 0);
        REQUIRE(probability[id] > 0);
        count[id] += 1;
        const double u = sequences[r].uniform();
        other_tokens += u > upper[id] || u < upper[id] - probability[id] ? 1 : 0;
      }
      double statistic = 0, bins = 0;
      for (std::int64_t id = 0; id < kV; ++id) {
        const double mean = probability[id] * static_cast<double>(draws);
        if (mean < 5) continue;
        statistic += (count[id] - mean) * (count[id] - mean) / mean;
        ++bins;
      }
      REQUIRE(bins > 1);
      const double k = bins - 1, variance = 2 / (9 * k);
      const double z = (std::cbrt(statistic / k) - (1 - variance)) / std::sqrt(variance);
      CAPTURE(bins);
      CHECK(std::fabs(z) < 4);
    }
    CHECK(other_tokens <= 5);
  }

  TEST_CASE("penalties and bias are those of the definition") {
    // All numbers are exact in fp32.
    const std::int64_t V = 33;
    Sequence s{random_logits(V, 5, 1.0f / 64)};
    s.options = {.repeat_penalty = 2,
                 .presence_penalty = 0.25,
                 .frequency_penalty = 0.5,
                 .repeat_last_n = 40,
                 .logit_bias = {{3, 1.5}, {32, -2}, {7, -INFINITY}}};
    s.history = random_ints(100, 6, V);
    for (const std::int64_t last_n : {0, 1, 40, 100, 1000, -1}) {
      s.options.repeat_last_n = last_n;
      const Outcome out = sample({s});
      const std::vector<double> expected =
          reference::modified_logits(s.logits, s.options, s.history);
      for (std::int64_t id = 0; id < V; ++id) CHECK(out.scratch[id] == expected[id]);
      CHECK(out.drawn[0] == s.reference().token);
    }
    s.options.temperature = 0;
    CHECK(sample({s}).drawn[0] == s.reference().token);
  }

  TEST_CASE("equal logits: the lower id is kept and wins") {
    const std::int64_t V = 257;
    std::vector<float> logits(V, 0.0f);
    for (std::int64_t id = 0; id < V; id += 2) logits[id] = -0.0f;  // equal to +0
    const auto kept = [&](const SamplingOptions& options) {
      return sample({{logits, options}}).kept(0, V);
    };
    const auto first = [](std::int32_t n) {
      Ids ids(n);
      std::iota(ids.begin(), ids.end(), 0);
      return ids;
    };
    CHECK(kept({.top_k = 9}) == first(9));
    CHECK(kept({.top_p = 0.5}) == first(129));
    CHECK(kept({.typical = 0.25}) == first(65));
    CHECK(kept({.min_p = 1}) == first(257));
    logits[5] = logits[77] = logits[200] = 1;
    CHECK(sample({{logits, {.temperature = 0}}}).drawn[0] == 5);
    CHECK(sample({{logits, {.temperature = 0, .repeat_penalty = 4}, {5}}}).drawn[0] == 77);
    CHECK(kept({.top_k = 2}) == Ids{5, 77});
    CHECK(kept({.top_k = 1}) == Ids{5});
    CHECK(kept({.top_p = 1e-9}) == Ids{5});
  }

  TEST_CASE("slots finish at the stop token, at the last position and at the end of the history") {
    std::vector<float> logits(9, 0.0f);
    logits[6] = 5;
    const Sequence greedy{logits, {.temperature = 0}, {1, 2, 3}};
    std::vector<Sequence> all(5, greedy);
    all[1].stop_token = 6;
    all[2].last_position = 3;
    all[3].finish = SlotFinish::length;
    all[4].history = Ids(15, 1);
    const Outcome out = sample(all, {.T_max = 16});
    CHECK(out.drawn == Ids{6, 6, 6, -1, 6});
    CHECK(out.token == Ids{6, 0, 0, 3, 0});
    CHECK(out.position == Ids{3, 0, 0, 2, 0});
    CHECK(out.history[0][3] == 6);
    CHECK(out.history[1][3] == -7);
    CHECK(out.history[2][3] == 6);
    CHECK(out.history[3][3] == -7);
    CHECK(out.history[4][15] == 6);
    const Ids finish = {0, 2, 1, 1, 1};  // active, stop, length three times
    CHECK(out.finish == finish);
    CHECK(out.log_probability[3] == 9.0f);
    CHECK(out.log_probability[1] == out.log_probability[0]);
  }

  TEST_CASE("logits that are not finite end a slot, and nothing else of it changes") {
    for (const std::int64_t V : {7, 300}) {
      for (const SamplingOptions& options :
           {SamplingOptions{.temperature = 0}, SamplingOptions{.top_k = 3, .top_p = 0.5}}) {
        const Sequence good{random_logits(V, 1), options, {2, 5}};
        std::vector<Sequence> all(6, good);
        all[1].logits[V - 1] = NAN;
        all[2].logits[0] = INFINITY;
        all[3].logits[V / 2] = -NAN;
        all[4].logits.assign(V, -INFINITY);
        all[5].logits[3] = INFINITY, all[5].logits[4] = NAN;
        const Outcome out = sample(all);
        CHECK(out.finish_of(0) == SlotFinish::active);
        for (std::size_t b = 1; b < all.size(); ++b) {
          CAPTURE(b);
          CHECK(out.finish_of(b) == SlotFinish::not_finite);
          CHECK(out.drawn[b] == -1);
          CHECK(out.token[b] == 5);
          CHECK(out.position[b] == 1);
          CHECK(out.history[b][2] == -7);
          CHECK(out.log_probability[b] == 9.0f);
        }
      }
    }
  }

  TEST_CASE("banned tokens are never drawn, even if only one other token is left") {
    const std::int64_t V = 20;
    for (const double temperature : {0.0, 1.0}) {
      Sequence s{random_logits(V, 2), {.temperature = temperature}};
      for (std::int32_t id = 0; id < V; ++id) {
        if (id != 13) s.options.logit_bias.emplace_back(id, -INFINITY);
      }
      for (const SamplingOptions& other : all_options()) {
        SamplingOptions options = other;
        options.temperature = temperature;
        options.logit_bias = s.options.logit_bias;
        s.options = options;
        CHECK(sample({s}).drawn[0] == 13);
      }
      s.options.logit_bias.emplace_back(13, -INFINITY);
      const Outcome out = sample({s});
      CHECK(out.finish_of(0) == SlotFinish::not_finite);
      CHECK(out.drawn[0] == -1);
    }
  }

  TEST_CASE("a token depends only on its own row, wherever it is in a batch") {
    const std::int64_t V = tiny_shapes() ? 257 : 5003;
    std::vector<Sequence> sequences;
    Ids slot;
    const std::vector<SamplingOptions> options = all_options();
    for (std::int64_t r = 0; r < 64; ++r) {
      Sequence s{random_logits(V, 100 + r, r % 2 == 0 ? 0 : 0.25f), options[r % options.size()]};
      s.history = random_ints(1 + r, r, V);
      s.sample = static_cast<std::uint32_t>(r % 5);
      sequences.push_back(s);
      slot.push_back(static_cast<std::int32_t>((r * 7 + 3) % 64));
    }
    slot[60] = -1;  // a row without a slot
    const Outcome batch = sample(sequences, {.slots = 70, .slot = slot});
    for (std::int64_t r = 0; r < 64; ++r) {
      if (slot[r] < 0) continue;
      const Outcome alone = sample({sequences[r]});
      CHECK(alone.drawn[0] == batch.drawn[slot[r]]);
      CHECK(same_bits(std::vector{alone.log_probability[0]},
                      std::vector{batch.log_probability[slot[r]]}));
      CHECK(alone.history[0] == batch.history[slot[r]]);
      CHECK(alone.position[0] == batch.position[slot[r]]);
    }
    for (std::int64_t b = 64; b < 70; ++b) CHECK(batch.drawn[b] == -1);
    CHECK(batch.drawn[(60 * 7 + 3) % 64] == -1);
  }

  TEST_CASE("without rows, no slot draws a token") {
    Stream stream;
    const DeviceArray<std::int32_t> state(Ids(3, 1), stream), drawn(Ids(3, 9), stream);
    const DeviceArray<float> log(std::vector<float>(3, 9.0f), stream);
    const auto ints = make_tensor(state.data(), 3);
    const Buffer<SlotSampling> options = upload(std::vector<SlotSampling>(3), stream);
    sample_next_tokens(
        {ints, ints, make_tensor(state.data(), 3, 1), make_tensor(log.data(), 3), ints},
        make_tensor(drawn.data(), 3), {nullptr, {0, 8}}, 7, {},
        make_tensor<const SlotSampling>(options.data(), 3), {}, {}, {}, stream);
    CHECK(drawn.stored() == Ids(3, -1));
    CHECK(state.stored() == Ids(3, 1));
  }

  TEST_CASE("a probability mass of 0 selects the most likely token after bias and penalties") {
    for (const SamplingOptions& options :
         {SamplingOptions{.top_p = 0}, SamplingOptions{.typical = 0},
          SamplingOptions{.temperature = 3, .top_k = 20, .top_p = 1e-50, .typical = 0.9},
          SamplingOptions{.typical = 0, .repeat_penalty = 4, .logit_bias = {{3, -INFINITY}}}}) {
      const Sequence s{random_logits(57, 4, 2.0f), options, {5, 6, 7}};
      Sequence greedy = s;
      greedy.options.temperature = 0;
      greedy.options.top_p = greedy.options.typical = 1;
      const std::int32_t expected = sample({greedy}).drawn[0];
      CHECK(sample({s}).drawn[0] == expected);
      CHECK(s.reference().token == expected);
    }
  }

  TEST_CASE("sampling rejects options outside their range") {
    for (const SamplingOptions& options :
         {SamplingOptions{.temperature = -1}, SamplingOptions{.top_p = -0.1},
          SamplingOptions{.min_p = 1.5}, SamplingOptions{.repeat_penalty = 0}}) {
      CHECK_THROWS_AS(slot_sampling(options, 1, 0, 5, -1), Error);
    }
  }
}

}  // namespace
