// The interface of generation to a model with a key-value cache, in any dtype of weights and cache:
// a call per launched pass, none per row. Code above this interface has no template parameter for
// dtypes. model_pass.h computes the passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/models/loadable_weights.h"

namespace llmc {

// The sizes of a batch. They are fixed, so its memory is fixed too.
struct BatchShape {
  std::int64_t slots = 1;        // sequences that are generated together
  std::int64_t capacity = 1;     // maximum number of tokens of a sequence in the cache
  std::int64_t chunk = 1;        // maximum number of rows of prompts in one pass
  std::int64_t logits_rows = 0;  // maximum number of rows of logits_of(); 0: slots

  std::int64_t rows() const { return std::max(slots, chunk); }
};

// How a model with INT8 weights computes.
struct Int8Pass {
  bool quantizes_rows = false;               // w8a8; false: activations are floats
  bool zero_points = true;                   // of the activations
  const ActivationScales* scales = nullptr;  // of the weights; may be null
};

// A part of a prompt that one pass reads.
struct PromptChunk {
  std::int64_t slot = 0;
  std::int64_t first_position = 0;  // of tokens[0]; the cache holds the tokens before it
  std::span<const std::int32_t> tokens{};
  bool wants_logits = false;  // those of the last token
};

class GenerationPass {
 public:
  virtual ~GenerationPass() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const BatchShape& shape() const = 0;
  virtual Stream& stream() = 0;

  // Call once, after the plan's memory is allocated.
  virtual void clear() = 0;
  // Forgets the faults of a slot; call before it gets another sequence.
  virtual void clear_faults(std::int64_t slot) = 0;
  // Describes the first input of a product that could not be quantized because it is not finite:
  // its layer, and its token in the context of the slot. Empty if there is none.
  virtual std::string fault_text(std::int64_t slot) = 0;

  // Reads chunks of prompts, at most shape().chunk rows; no slot occurs twice. Returns the logits
  // (n, columns) of the n chunks that want them, in their order; columns from V on are undefined.
  // The result is valid until the next call.
  virtual Tensor<const float, 2> read_prompts(const std::vector<PromptChunk>& chunks) = 0;
  // The logits (count, columns) of rows [first, first + count) of the last read_prompts(), whose
  // rows are those of its chunks, one after the other; at most logits_rows of them.
  virtual Tensor<const float, 2> logits_of(std::int64_t first, std::int64_t count) = 0;
  // Reads one generated token per slot, at position[b] of slot b, both (slots) in device memory.
  // Returns the logits (slots, columns).
  virtual Tensor<const float, 2> step(In<std::int32_t, 1> token, In<std::int32_t, 1> position) = 0;
  // The logits (slots, columns) that step() writes.
  virtual Tensor<const float, 2> step_logits() const = 0;

  // Bytes of cache that a step reads per sequence and token in it.
  virtual std::int64_t cache_bytes_per_token() const = 0;
};

}  // namespace llmc
