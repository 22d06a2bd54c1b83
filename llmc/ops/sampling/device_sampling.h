// Draws the next token of each sequence of a batch on the device, in one launch. host_sampling.h
// has the definition in fp64.
//
// The token of a row depends only on its logits, its history and its options, not on the other
// rows. SamplingOptions describes the steps and their order.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

// How a slot draws its tokens, in device memory. Fields have the meanings of SamplingOptions.
struct SlotSampling {
  float temperature, top_p, min_p, typical, repeat_penalty, presence_penalty, frequency_penalty;
  std::int32_t top_k, repeat_last_n;
  std::uint64_t seed;          // the random number of a token depends on the seed,
  std::uint32_t sample;        // the number of the sample of the prompt, below 2^24,
  std::int32_t last_position;  // and the token's position. This is the last one to generate.
  std::int32_t stop_token;     // ends the text; -1: none
};

enum class SlotFinish : std::int32_t { active = 0, length, stop, not_finite, idle };

// Views of device memory of B slots. A slot holds one sequence of at most T_max tokens.
struct SlotState {
  Tensor<std::int32_t, 1> token;     // (B) the newest token, the input of the next step
  Tensor<std::int32_t, 1> position;  // (B) its position
  Tensor<std::int32_t, 2> history;   // (B, T_max) tokens of the sequence, by position
  Tensor<float, 1> log_probability;  // (B) of the token just drawn
  Tensor<std::int32_t, 1> finish;    // (B) SlotFinish
};

// Converts options for the device. A top_p or typical that is 0 in fp32 selects the most likely
// token, like a temperature of 0. Throws an Error if an option is outside its range.
SlotSampling slot_sampling(const SamplingOptions& options, std::uint64_t seed, std::uint32_t sample,
                           std::int32_t last_position, std::int32_t stop_token);

// Number of floats of scratch memory for sample_next_tokens.
std::int64_t sampling_scratch(std::int64_t rows, std::int64_t V);

// Draws the next token of each row's slot from logits (rows, columns); columns >= V is a multiple
// of 8, and columns from V on are not read. V is at most 2^24. Row r belongs to slot[r], or to slot
// r if `slot` has no data; a row of slot -1 is skipped. No slot has two rows. `rows` may be 0.
//
// A slot that is not active draws no token. Otherwise its token, position, history and
// log_probability change. log_probability is the natural logarithm of the token's probability under
// the softmax of the raw logits. drawn (B) is the token, or -1 if the slot drew none;
// it is written for all slots, also if there are no rows.
//
// A slot finishes if it draws its stop token, which is not stored in the history, or if the new
// position is last_position or the end of the history. Then its token and position become 0, so
// that later steps of the batch have a valid input. A slot whose logits contain NaN or +infinity,
// or have no token that is not banned, finishes as not_finite and nothing else of it changes.
//
// bias_ids and bias_values (n) apply to all slots; the ids are distinct. Scratch:
// sampling_scratch(rows, V).
void sample_next_tokens(const SlotState& state, Tensor<std::int32_t, 1> drawn, In<float, 2> logits,
                        std::int64_t V, In<std::int32_t, 1> slot,
                        Tensor<const SlotSampling, 1> options, In<std::int32_t, 1> bias_ids,
                        In<float, 1> bias_values, Tensor<float, 1> scratch, Stream& stream);

}  // namespace llmc
