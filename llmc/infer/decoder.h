// A model that reads a prompt in one pass and then a token at a time. It is the model of training
// (model/gpt2.h) with an attention that keeps keys and values: a prompt's tokens see each other
// through flash attention, a later token sees the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/infer/kv_cache.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/memory_plan.h"
#include "llmc/model/parameter_source.h"
#include "llmc/ops/attention/cached_attention.h"
#include "llmc/ops/attention/key_value_cache.h"

namespace llmc {

// What a decoder is built for; fixed, so that its memory is.
struct DecoderShape {
  std::int64_t B = 1;         // sequences side by side
  std::int64_t prompt = 1;    // tokens that are read in one pass, at most
  std::int64_t capacity = 1;  // tokens of a sequence in the cache, at most; up to the context
};

template <class T>
class Decoder {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `table` outlives the decoder.
  Decoder(const Gpt2Config& config, const ParameterTable& table, const DecoderShape& shape,
          MemoryPlan& plan)
      : shape_(checked(shape, config)),
        model_(config, table,
               {.B = shape.B, .T = shape.prompt, .training = false, .logits_rows = shape.B}, plan),
        cache_(config, shape.B, shape.capacity, plan),
        staged_(shape.B * (shape.prompt + 1)) {
    plan.reserve("staging", staging_, staged_.size());
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Begins anew with B prompts of equal length, B*T ids one prompt after the other. T is at
  // least 1.
  void prefill(ParameterSource<T>& source, const std::vector<std::int32_t>& tokens, Gemm& gemm,
               Stream& stream) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    require(count > 0 && count % shape_.B == 0 && count <= shape_.B * shape_.prompt,
            "prompts that the decoder was not built for");
    length_ = 0;
    run(source, tokens, count / shape_.B, gemm, stream,
        [&](std::int64_t, Tensor<T, 3> out, Tensor<float, 3> lse, Tensor<const T, 3> qkv) {
          flash_attention_forward<T>(out, lse, qkv, model_.config().heads, nullptr, stream);
        });
  }

  // One more token for each sequence, B ids. Throws when the cache is full.
  void advance(ParameterSource<T>& source, const std::vector<std::int32_t>& tokens, Gemm& gemm,
               Stream& stream) {
    require(std::ssize(tokens) == shape_.B, "not one token for each sequence");
    if (length_ == 0) fail("advance() before prefill()");
    if (length_ == shape_.capacity) {
      fail("the cache is full: " + std::to_string(length_) + " tokens",
           "a decoder with more capacity, up to the model's context");
    }
    run(source, tokens, 1, gemm, stream,
        [&](std::int64_t layer, Tensor<T, 3> out, Tensor<float, 3>, Tensor<const T, 3> qkv) {
          cached_attention<T>(out, qkv, cache_.keys(layer), cache_.values(layer), positions_,
                              model_.config().heads, stream);
        });
  }

  // The logits (V) for the token that follows sequence b, in host memory.
  void logits(std::int64_t b, std::vector<T>& values, ParameterSource<T>& source, Gemm& gemm,
              Stream& stream) {
    const auto row = model_.logits_of_row(source, (b + 1) * last_pass_ - 1, gemm, stream);
    values.resize(static_cast<std::size_t>(model_.config().vocabulary));
    copy_to_host(values.data(), row.data, model_.config().vocabulary, stream);
    stream.synchronize();
  }

  const Gpt2Config& config() const { return model_.config(); }
  std::int64_t length() const { return length_; }  // tokens of each sequence read so far
  std::int64_t capacity() const { return shape_.capacity; }

 private:
  static const DecoderShape& checked(const DecoderShape& shape, const Gpt2Config& config) {
    require(shape.B > 0 && shape.prompt > 0, "a decoder for no sequences, or for empty prompts");
    if (shape.prompt > shape.capacity || shape.capacity > config.context) {
      fail("a cache of " + std::to_string(shape.capacity) + " tokens for prompts of " +
               std::to_string(shape.prompt),
           "prompt <= capacity <= context, which is " + std::to_string(config.context));
    }
    return shape;
  }

  // Reads T_new more tokens of each sequence; attend() finds their keys and values in the cache.
  template <class Attend>
  void run(ParameterSource<T>& source, const std::vector<std::int32_t>& tokens, std::int64_t T_new,
           Gemm& gemm, Stream& stream, Attend&& attend) {
    const DeviceBatch batch = stage(tokens, T_new, stream);
    model_.forward(
        source, batch, gemm, stream,
        [&](std::int64_t layer, Tensor<T, 3> out, Tensor<float, 3> lse, Tensor<const T, 3> qkv) {
          store_keys_values<T>(cache_.keys(layer), cache_.values(layer), qkv, positions_, stream);
          attend(layer, out, lse, qkv);
        });
    length_ += T_new;
    last_pass_ = T_new;
  }

  // Ids and positions go to the device in one copy.
  DeviceBatch stage(const std::vector<std::int32_t>& tokens, std::int64_t T_new, Stream& stream) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    if (staged_once_) copied_.synchronize();  // the last copy has read the host's side
    std::copy(tokens.begin(), tokens.end(), staged_.data());
    std::fill_n(staged_.data() + rows, shape_.B, static_cast<std::int32_t>(length_));
    copy_to_device(staging_.data, static_cast<const std::int32_t*>(staged_.data()), rows + shape_.B,
                   stream);
    copied_.record(stream);
    staged_once_ = true;
    positions_ = make_tensor(static_cast<const std::int32_t*>(staging_.data) + rows, shape_.B);
    DeviceBatch batch;
    batch.B = shape_.B;
    batch.T = T_new;
    batch.tokens = make_tensor(static_cast<const std::int32_t*>(staging_.data), rows);
    batch.first_position = positions_.data;
    return batch;
  }

  DecoderShape shape_;
  Gpt2<T> model_;
  KvCache<T> cache_;
  Tensor<std::int32_t, 1> staging_;          // ids (B*T), then positions (B)
  PinnedBuffer<std::int32_t> staged_;        // the same on the host
  Tensor<const std::int32_t, 1> positions_;  // (B) of the first token of the pass
  Event copied_;
  bool staged_once_ = false;
  std::int64_t length_ = 0;     // tokens of each sequence in the cache
  std::int64_t last_pass_ = 0;  // tokens of each sequence in the last pass
};

}  // namespace llmc
