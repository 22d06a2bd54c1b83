#include <algorithm>
#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/device/philox.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/device_sampling_filters.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

SlotSampling slot_sampling(const SamplingOptions& options, std::uint64_t seed, std::uint32_t sample,
                           std::int32_t last_position, std::int32_t stop_token) {
  const auto to_int = [](std::int64_t x) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(x, INT32_MAX));
  };
  require(options.temperature >= 0 && options.top_k >= 0 && options.top_p >= 0 &&
              options.typical >= 0 && options.min_p >= 0 && options.min_p <= 1 &&
              options.repeat_penalty > 0 && options.repeat_last_n >= -1,
          "slot_sampling: an option is outside its range");
  return {.temperature = is_greedy(options) ? 0.0f : static_cast<float>(options.temperature),
          .top_p = static_cast<float>(options.top_p),
          .min_p = static_cast<float>(options.min_p),
          .typical = static_cast<float>(options.typical),
          .repeat_penalty = static_cast<float>(options.repeat_penalty),
          .presence_penalty = static_cast<float>(options.presence_penalty),
          .frequency_penalty = static_cast<float>(options.frequency_penalty),
          .top_k = to_int(options.top_k),
          .repeat_last_n = to_int(options.repeat_last_n),
          .seed = seed,
          .sample = sample,
          .last_position = last_position,
          .stop_token = stop_token};
}

namespace sampling {

// Kernel arguments: the pointers of a SlotState, its sizes, and the bias of all slots.
struct SlotPointers {
  std::int32_t *token, *position, *history;
  float* log_probability;
  std::int32_t *finish, *drawn;
  std::int64_t B, T_max;
};
struct BiasPointers {
  const std::int32_t* ids;
  const float* values;
  std::int64_t count;
};

// Draws a token from the logits of the work row. Returns it to thread 0, or -1 if no token has a
// probability above 0.
__device__ __forceinline__ std::int32_t draw_filtered(WorkRow& row, const SlotSampling& s,
                                                      const BlockMemory& memory) {
  float max = max_logit(row, memory);
  if (!(max > -kInfinity && max < kInfinity)) return -1;
  if (s.top_k > 0) keep_top_k(row, s.top_k, max, memory);
  const bool has_weights = s.typical < 1 || s.top_p < 1 || s.min_p > 0;
  float sum = has_weights ? compute_weights(row, max, 1.0f, memory) : 0.0f;
  if (s.typical < 1) {
    keep_typical(row, s.typical, max, sum, memory);
    max = max_logit(row, memory);
    sum = weight_sum(row, memory);
  }
  if (s.top_p < 1) keep_top_p(row, s.top_p, max, sum, memory);
  if (s.min_p > 0) keep_min_p(row, s.min_p, memory);
  // The weights at a temperature of 1 are relative to the same maximum unless it was dropped.
  if (!has_weights || s.typical < 1 || s.temperature != 1) {
    compute_weights(row, max, s.temperature, memory);
  }
  return draw(row.weights(), row.columns(), memory.kept[kKeptUniform], memory);
}

// Chooses the next token of a slot. Returns it to thread 0, or -1 if that is impossible.
__device__ __forceinline__ std::int32_t next_token(WorkRow& row, const float* raw, std::int64_t V,
                                                   std::int32_t best, const SlotSampling& s,
                                                   const std::int32_t* history,
                                                   std::int32_t position, const BiasPointers& bias,
                                                   const BlockMemory& memory) {
  const std::int64_t length = position + 1;  // tokens in the history
  const std::int64_t seen =
      s.repeat_last_n < 0 || s.repeat_last_n > length ? length : s.repeat_last_n;
  const bool has_penalties =
      seen > 0 && (s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0);
  if (s.temperature == 0 && !has_penalties && bias.count == 0) return best;
  copy_logits(row, raw, V);
  if (bias.count > 0) add_bias(row, V, bias.ids, bias.values, bias.count);
  if (has_penalties) {
    add_penalties(row, V, history + length - seen, seen,
                  {s.repeat_penalty, s.presence_penalty, s.frequency_penalty});
  }
  if (s.temperature > 0) return draw_filtered(row, s, memory);
  const float max = max_logit(row, memory);
  if (!(max > -kInfinity && max < kInfinity)) return -1;
  return best_token(row, max, memory);
}

// Records the drawn token of slot b, or that there is none, by one thread.
__device__ __forceinline__ void record_token(const SlotPointers& state, int b,
                                             const SlotSampling& s, std::int32_t token,
                                             float log_probability) {
  state.drawn[b] = token;
  if (token < 0) {
    state.finish[b] = static_cast<std::int32_t>(SlotFinish::not_finite);
    return;
  }
  const std::int32_t position = state.position[b] + 1;
  state.log_probability[b] = log_probability;
  const bool is_stop = token == s.stop_token;
  const bool is_last = position >= s.last_position || position + 1 >= state.T_max;
  if (!is_stop && position < state.T_max) state.history[b * state.T_max + position] = token;
  if (is_stop || is_last) {
    state.finish[b] = static_cast<std::int32_t>(is_stop ? SlotFinish::stop : SlotFinish::length);
  }
  state.token[b] = is_stop || is_last ? 0 : token;
  state.position[b] = is_stop || is_last ? 0 : position;
}

// Slots without a row draw no token.
__device__ __forceinline__ void clear_other_slots(const SlotPointers& state,
                                                  const std::int32_t* slot, std::int64_t rows) {
  const int threads = cooperating_threads(block_size());
  for (std::int64_t b = thread_index(); b < state.B; b += threads) {
    bool has_row = slot == nullptr && b < rows;
    for (std::int64_t r = 0; slot != nullptr && r < rows; ++r) has_row = has_row || slot[r] == b;
    if (!has_row) state.drawn[b] = -1;
  }
}
}  // namespace sampling

// One block per row; one block if there are no rows.
template <class = void>
__global__ __launch_bounds__(sampling::kMaxThreads) void sample_next_tokens_kernel(
    sampling::SlotPointers state, const float* logits, std::int64_t V, std::int64_t columns,
    const std::int32_t* slot, const SlotSampling* options, sampling::BiasPointers bias,
    std::int64_t rows, float* scratch) {
  SharedMemory shared;
  const sampling::BlockMemory memory{
      shared.take<float>(kBlockScratch), shared.take<float>(sampling::kSegments),
      shared.take<float>(sampling::kGroups), shared.take<float>(sampling::kKept)};
  allow_next_launch();
  wait_for_previous_launch();
  const int r = static_cast<int>(block_x());
  if (r == 0) sampling::clear_other_slots(state, slot, rows);
  if (r >= rows) return;
  const int b = slot == nullptr ? r : slot[r];
  if (b < 0 || b >= state.B) return;
  const bool is_active = state.finish[b] == static_cast<std::int32_t>(SlotFinish::active);
  const std::int32_t position = state.position[b];
  block_barrier();  // thread 0 changes the state below
  if (!is_active) {
    if (thread_index() == 0) state.drawn[b] = -1;
    return;
  }
  const sampling::RowStatistics statistics =
      sampling::row_statistics(logits + r * columns, V, memory);
  if (thread_index() == 0) {
    const PhiloxBits bits =
        random_bits(options[b].seed, RandomPurpose::sampling, 0, options[b].sample,
                    static_cast<std::uint64_t>(position + 1));
    memory.kept[sampling::kKeptMax] = statistics.max;
    memory.kept[sampling::kKeptSum] = statistics.sum;
    memory.kept[sampling::kKeptUniform] = uniform_from_bits(bits.words[0]);
  }
  std::int32_t token = -1;
  if (statistics.sum > 0) {
    sampling::WorkRow work(scratch + r * sampling::WorkRow::size(V), V);
    token = sampling::next_token(work, logits + r * columns, V, statistics.best, options[b],
                                 state.history + b * state.T_max, position, bias, memory);
  }
  if (thread_index() != 0) return;
  const float* const row = logits + block_x() * columns;
  const float log_probability = token < 0 ? 0.0f
                                          : row[token] - memory.kept[sampling::kKeptMax] -
                                                std::log(memory.kept[sampling::kKeptSum]);
  const int drawn_slot = slot == nullptr ? static_cast<int>(block_x()) : slot[block_x()];
  sampling::record_token(state, drawn_slot, options[drawn_slot], token, log_probability);
}

std::int64_t sampling_scratch(std::int64_t rows, std::int64_t V) {
  return rows * sampling::WorkRow::size(V);
}

void sample_next_tokens(const SlotState& state, Tensor<std::int32_t, 1> drawn, In<float, 2> logits,
                        std::int64_t V, In<std::int32_t, 1> slot,
                        Tensor<const SlotSampling, 1> options, In<std::int32_t, 1> bias_ids,
                        In<float, 1> bias_values, Tensor<float, 1> scratch, Stream& stream) {
  const ProfileScope scope("sampling", stream);
  const std::int64_t rows = logits.shape[0], columns = logits.shape[1];
  const std::int64_t B = state.token.shape[0], T_max = state.history.shape[1];
  require_vector_rows("sample_next_tokens", columns);
  require(V > 0 && V <= columns && V <= std::int64_t{1} << 24,
          "sample_next_tokens: the vocabulary is empty, too large or does not fit a row of logits");
  check_shape("position", state.position, {B});
  check_shape("history", state.history, {B, T_max});
  check_shape("log_probability", state.log_probability, {B});
  check_shape("finish", state.finish, {B});
  check_shape("drawn", drawn, {B});
  check_shape("sampling", options, {B});
  check_shape("bias_values", bias_values, {bias_ids.shape[0]});
  if (slot.data != nullptr) check_shape("slot", slot, {rows});
  require(slot.data != nullptr || rows <= B, "sample_next_tokens: more rows than slots");
  require_scratch("sample_next_tokens", scratch, sampling_scratch(rows, V));
  const std::int64_t threads = round_up(ceil_div(V, sampling::kVector), 32);
  launch_overlapped(
      sample_next_tokens_kernel<>, Grid{std::max<std::int64_t>(rows, 1), 1, 1},
      cooperating_threads(static_cast<int>(std::min<std::int64_t>(sampling::kMaxThreads, threads))),
      sampling::block_memory_bytes(), stream,
      sampling::SlotPointers{state.token.data, state.position.data, state.history.data,
                             state.log_probability.data, state.finish.data, drawn.data, B, T_max},
      logits.data, V, columns, slot.data, options.data,
      sampling::BiasPointers{bias_ids.data, bias_values.data, bias_ids.shape[0]}, rows,
      scratch.data);
}

}  // namespace llmc
