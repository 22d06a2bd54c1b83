// A model that reads a prompt in one pass and then one token at a time. It is the model of training
// (model/gpt2.h) with an attention that stores keys and values: the tokens of a prompt attend to
// each other through flash attention, and each later token attends to the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/infer/kv_cache.h"
#include "llmc/model/model_runner.h"
#include "llmc/ops/attention/cached_attention.h"
#include "llmc/ops/attention/key_value_cache.h"
#include "llmc/ops/sampling/host_sampling.h"

namespace llmc {

// The sizes of a decoder. They are fixed, so its memory is fixed too.
struct DecoderShape {
  std::int64_t B = 1;         // sequences decoded together
  std::int64_t prompt = 1;    // maximum number of tokens read in one pass
  std::int64_t capacity = 1;  // maximum number of tokens of a sequence in the cache

  // The shape with which the model runs.
  RunShape run_shape() const { return {.B = B, .T = prompt, .training = false, .logits_rows = B}; }
};

template <class T>
class Decoder {
 public:
  using Logits = std::vector<T>;

  // Reserves memory in the plan; usable after plan.allocate(). The runner must be built for
  // shape.run_shape() and must outlive the decoder.
  Decoder(ModelRunner<T>& runner, const DecoderShape& shape, MemoryPlan& plan)
      : runner_(runner),
        shape_(validate(shape, runner.config())),
        cache_(runner.config(), shape.B, shape.capacity, plan) {
    require(runner.context().tensor.ranks() == 1, "a decoder needs the whole model on its rank");
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Empties the cache and reads B prompts of equal length T >= 1 (B*T ids, concatenated).
  void prefill(const std::vector<std::int32_t>& tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    require(count > 0 && count % shape_.B == 0 && count <= shape_.B * shape_.prompt,
            "the prompts do not fit the shape of the decoder");
    length_ = 0;
    const std::int64_t heads = config().heads;
    run(tokens, count / shape_.B,
        [&](std::int64_t, Tensor<T, 3> out, Tensor<float, 3> lse, Tensor<const T, 3> qkv) {
          flash_attention_forward<T>(out, lse, qkv, heads, nullptr, runner_.context().stream);
        });
  }

  // Reads one more token of each sequence, B ids. Throws if the cache is full.
  void advance(const std::vector<std::int32_t>& tokens) {
    require(std::ssize(tokens) == shape_.B, "advance() needs one token per sequence");
    if (length_ == 0) fail("advance() was called before prefill()");
    if (length_ == shape_.capacity) {
      fail("the cache is full: " + std::to_string(length_) + " tokens",
           "build a decoder with more capacity, at most the model's context");
    }
    run(tokens, 1,
        [&](std::int64_t layer, Tensor<T, 3> out, Tensor<float, 3>, Tensor<const T, 3> qkv) {
          cached_attention<T>(out, qkv, cache_.keys(layer), cache_.values(layer), positions_,
                              config().heads, runner_.context().stream);
        });
  }

  // The logits (V) for the token that follows sequence b, in host memory. Throws an Error if one
  // is not finite.
  void logits(std::int64_t b, Logits& values) {
    runner_.read_logits((b + 1) * last_pass_length_ - 1, values);
    require_finite(values);
  }

  const Gpt2Config& config() const { return runner_.config(); }
  std::int64_t max_length() const { return config().context; }  // maximum tokens of a sequence
  std::int64_t length() const { return length_; }  // tokens of each sequence in the cache

 private:
  static const DecoderShape& validate(const DecoderShape& shape, const Gpt2Config& config) {
    require(shape.B > 0 && shape.prompt > 0,
            "a decoder needs at least one sequence and one prompt token");
    if (shape.prompt > shape.capacity || shape.capacity > config.context) {
      fail("a cache of " + std::to_string(shape.capacity) + " tokens does not fit prompts of " +
               std::to_string(shape.prompt) + " tokens and a context of " +
               std::to_string(config.context),
           "choose prompt <= capacity <= context");
    }
    return shape;
  }

  // Reads T_new more tokens of each sequence; attend() runs after their keys and values are stored
  // in the cache.
  template <class Attend>
  void run(const std::vector<std::int32_t>& tokens, std::int64_t T_new, const Attend& attend) {
    const std::vector<std::int32_t> first_position(static_cast<std::size_t>(shape_.B),
                                                   static_cast<std::int32_t>(length_));
    const DeviceBatch batch = runner_.put(
        {.batch = {.B = shape_.B, .T = T_new, .inputs = tokens}, .first_position = first_position});
    positions_ = make_tensor(batch.first_position, shape_.B);
    runner_.forward(batch, [&](std::int64_t layer, Tensor<T, 3> out, Tensor<float, 3> lse,
                               Tensor<const T, 3> qkv) {
      store_keys_values<T>(cache_.keys(layer), cache_.values(layer), qkv, positions_,
                           runner_.context().stream);
      attend(layer, out, lse, qkv);
    });
    length_ += T_new;
    last_pass_length_ = T_new;
  }

  ModelRunner<T>& runner_;
  DecoderShape shape_;
  KvCache<T> cache_;
  Tensor<const std::int32_t, 1> positions_;  // (B) position of the first token of the pass
  std::int64_t length_ = 0;                  // tokens of each sequence in the cache
  std::int64_t last_pass_length_ = 0;        // tokens of each sequence in the last pass
};

}  // namespace llmc
