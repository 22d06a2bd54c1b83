// Samples sequences on the device, for tests of sampling: their logits and options, and the state
// of the slots after a launch.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/infer/generate.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/host_sampling.h"
#include "test/support.h"

namespace llmc_test::sampling_rig {

using namespace llmc;
using llmc_dev::DeviceArray;
using Ids = std::vector<std::int32_t>;

inline constexpr std::uint64_t kSeed = 77;

// One sequence: its logits, its history, and how it is sampled.
struct Sequence {
  std::vector<float> logits;
  SamplingOptions options = {};
  Ids history = {0};
  std::uint32_t sample = 0;
  std::int32_t last_position = 1000, stop_token = -1;
  SlotFinish finish = SlotFinish::active;

  std::int32_t next_position() const { return static_cast<std::int32_t>(history.size()); }
  double uniform() const { return sampling_uniform(kSeed, 0, sample, next_position()); }
  ReferenceSample reference() const {
    return sample_token_reference(logits, options, history, uniform());
  }
};

// State of all slots after a launch.
struct Outcome {
  Ids token, position, finish, drawn;
  std::vector<float> log_probability, scratch;
  std::vector<Ids> history;

  SlotFinish finish_of(std::size_t b) const { return static_cast<SlotFinish>(finish[b]); }
  // Tokens that the filters of row r kept.
  Ids kept(std::int64_t r, std::int64_t V) const {
    const std::int64_t begin = r * sampling_scratch(1, V);
    Ids ids;
    for (std::int64_t id = 0; id < V; ++id) {
      if (scratch[begin + id] > -INFINITY) ids.push_back(static_cast<std::int32_t>(id));
    }
    return ids;
  }
};

struct Layout {
  std::int64_t slots = 0;  // 0: one per sequence
  Ids slot = {};           // slot of each sequence; empty: its index
  std::int64_t T_max = 1024;
};

// Samples one row per sequence. The bias of the first sequence applies to all of them. Columns from
// V on are NaN.
inline Outcome sample(const std::vector<Sequence>& sequences, const Layout& layout = {}) {
  Stream stream;
  const std::int64_t rows = std::ssize(sequences), V = std::ssize(sequences[0].logits);
  const std::int64_t B = layout.slots == 0 ? rows : layout.slots, T = layout.T_max;
  const std::int64_t columns = round_up(V, 8);
  std::vector<float> logits(rows * columns, NAN);
  Ids token(B, 3), position(B, 4), finish(B, static_cast<std::int32_t>(SlotFinish::idle));
  Ids history(B * T, -7);
  std::vector<SlotSampling> options(B);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Sequence& s = sequences[r];
    const std::int64_t b = layout.slot.empty() ? r : layout.slot[r];
    std::copy(s.logits.begin(), s.logits.end(), logits.begin() + r * columns);
    if (b < 0) continue;
    std::copy(s.history.begin(), s.history.end(), history.begin() + b * T);
    token[b] = s.history.back();
    position[b] = s.next_position() - 1;
    finish[b] = static_cast<std::int32_t>(s.finish);
    options[b] = slot_sampling(s.options, kSeed, s.sample, s.last_position, s.stop_token);
  }
  Ids bias_ids;
  std::vector<float> bias_values;
  for (const auto& [id, value] : sequences[0].options.logit_bias) {
    bias_ids.push_back(id);
    bias_values.push_back(static_cast<float>(value));
  }
  const DeviceArray<float> d_logits(logits, stream), d_values(bias_values, stream);
  const DeviceArray<std::int32_t> d_token(token, stream), d_position(position, stream),
      d_finish(finish, stream), d_history(history, stream), d_ids(bias_ids, stream),
      d_slot(layout.slot, stream), d_drawn(Ids(B, -5), stream);
  const DeviceArray<float> d_log(std::vector<float>(B, 9.0f), stream);
  const DeviceArray<float> scratch(std::vector<float>(sampling_scratch(rows, V), NAN), stream);
  const Buffer<SlotSampling> d_options = upload(options, stream);
  const SlotState state{make_tensor(d_token.data(), B), make_tensor(d_position.data(), B),
                        make_tensor(d_history.data(), B, T), make_tensor(d_log.data(), B),
                        make_tensor(d_finish.data(), B)};
  sample_next_tokens(
      state, make_tensor(d_drawn.data(), B), make_tensor(d_logits.data(), rows, columns), V,
      layout.slot.empty() ? Tensor<std::int32_t, 1>{} : make_tensor(d_slot.data(), rows),
      make_tensor<const SlotSampling>(d_options.data(), B),
      make_tensor(d_ids.data(), std::ssize(bias_ids)),
      make_tensor(d_values.data(), std::ssize(bias_ids)),
      make_tensor(scratch.data(), scratch.size()), stream);
  for (const auto* array : {&d_token, &d_position, &d_finish, &d_history, &d_drawn})
    CHECK(array->guards_intact());
  CHECK(d_log.guards_intact());
  CHECK(scratch.guards_intact());
  CHECK(same_bits(d_logits.stored(), logits));
  Outcome out{d_token.stored(),
              d_position.stored(),
              d_finish.stored(),
              d_drawn.stored(),
              d_log.stored(),
              scratch.stored(),
              {}};
  const Ids stored = d_history.stored();
  for (std::int64_t b = 0; b < B; ++b)
    out.history.emplace_back(stored.begin() + b * T, stored.begin() + (b + 1) * T);
  return out;
}

// Normal logits; with `step`, rounded to multiples of it, so that many are equal.
inline std::vector<float> random_logits(std::int64_t V, std::uint64_t seed, float step = 0) {
  std::vector<float> x = random_floats(V, seed, 2.5);
  for (float& value : x) value = step > 0 ? std::round(value / step) * step : value;
  return x;
}

}  // namespace llmc_test::sampling_rig
