// A model that reads prompts and then one token of each sequence at a time: a ModelPass whose
// sequences have equal lengths, with its logits in host memory. From the second step on, a step is
// the replay of a graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/device/replay.h"
#include "llmc/infer/model_pass.h"
#include "llmc/models/model_runner.h"
#include "llmc/ops/sampling/host_sampling.h"

namespace llmc {

// The sizes of a decoder. They are fixed, so its memory is fixed too.
struct DecoderShape {
  std::int64_t B = 1;         // sequences decoded together
  std::int64_t prompt = 1;    // maximum number of tokens of a prompt
  std::int64_t capacity = 1;  // maximum number of tokens of a sequence in the cache
  std::int64_t chunk = 512;   // maximum number of rows of prompts in one pass

  // The shape of the model's own passes, which a decoder does not use: the smallest one.
  RunShape run_shape() const { return {.B = 1, .T = 1, .training = false, .logits_rows = 1}; }
  BatchShape batch_shape() const {
    return {.slots = B, .capacity = capacity, .chunk = std::min(chunk, B * prompt)};
  }
};

template <class T, class KV = T>
class Decoder {
 public:
  using Logits = std::vector<float>;

  // Reserves memory in the plan; usable after plan.allocate(). The runner must outlive the decoder.
  Decoder(ModelRunner<T>& runner, const DecoderShape& shape, MemoryPlan& plan)
      : shape_(validate(shape, runner.config())),
        model_(runner.model(), runner.context(), shape.batch_shape(), plan) {
    plan.reserve("batch", token_, shape.B);
    plan.reserve("batch", position_, shape.B);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Empties the cache and reads B prompts of equal length T >= 1 (B*T ids, concatenated).
  void prefill(const std::vector<std::int32_t>& tokens) {
    const std::int64_t count = std::ssize(tokens);
    require(count > 0 && count % shape_.B == 0 && count <= shape_.B * shape_.prompt,
            "the prompts do not fit the shape of the decoder");
    model_.clear();
    length_ = count / shape_.B;
    last_logits_.resize(static_cast<std::size_t>(shape_.B));
    for (std::int64_t b = 0; b < shape_.B; ++b) {
      read_prompt(b, std::span(tokens).subspan(static_cast<std::size_t>(b * length_),
                                               static_cast<std::size_t>(length_)));
    }
  }

  // Reads one more token of each sequence, B ids. Throws if the cache is full.
  void advance(const std::vector<std::int32_t>& tokens) {
    require(std::ssize(tokens) == shape_.B, "advance() needs one token per sequence");
    if (length_ == 0) fail("advance() was called before prefill()");
    if (length_ == shape_.capacity) {
      fail("the cache is full: " + std::to_string(length_) + " tokens",
           "build a decoder with more capacity, at most the model's context");
    }
    const std::vector<std::int32_t> positions(tokens.size(), static_cast<std::int32_t>(length_));
    copy_to_device(token_.data, tokens.data(), shape_.B, stream());
    copy_to_device(position_.data, positions.data(), shape_.B, stream());
    step_.run(stream(), [this] { model_.step(token_, position_); });
    logits_ = model_.step_logits();
    ++length_;
    for (std::int64_t b = 0; b < shape_.B; ++b) copy_logits(b, b);
    stream().synchronize();
  }

  // The logits (V) for the token that follows sequence b. Throws an Error if one is not finite.
  void logits(std::int64_t b, Logits& values) {
    values = last_logits_[static_cast<std::size_t>(b)];
    require_finite(values);
  }

  const ModelConfig& config() const { return model_.config(); }
  std::int64_t max_length() const { return config().context; }  // maximum tokens of a sequence
  std::int64_t length() const { return length_; }  // tokens of each sequence in the cache

 private:
  static const DecoderShape& validate(const DecoderShape& shape, const ModelConfig& config) {
    require(shape.B > 0 && shape.prompt > 0 && shape.chunk > 0,
            "a decoder needs at least one sequence, one prompt token and one row of a pass");
    if (shape.prompt > shape.capacity || shape.capacity > config.context) {
      fail("a cache of " + std::to_string(shape.capacity) + " tokens does not fit prompts of " +
               std::to_string(shape.prompt) + " tokens and a context of " +
               std::to_string(config.context),
           "choose prompt <= capacity <= context");
    }
    return shape;
  }

  Stream& stream() { return model_.stream(); }

  // Reads the prompt of sequence b in pieces.
  void read_prompt(std::int64_t b, std::span<const std::int32_t> tokens) {
    const auto chunk = static_cast<std::size_t>(model_.shape().chunk);
    for (std::size_t first = 0; first < tokens.size(); first += chunk) {
      const auto piece = tokens.subspan(first, std::min(chunk, tokens.size() - first));
      const bool is_last = first + piece.size() == tokens.size();
      logits_ = model_.read_prompts({{b, static_cast<std::int64_t>(first), piece, is_last}});
    }
    copy_logits(b, 0);
    stream().synchronize();
  }

  void copy_logits(std::int64_t b, std::int64_t row) {
    Logits& values = last_logits_[static_cast<std::size_t>(b)];
    values.resize(static_cast<std::size_t>(config().vocabulary));
    copy_to_host(values.data(), logits_.data + row * logits_.shape[1], config().vocabulary,
                 stream());
  }

  DecoderShape shape_;
  ModelPass<T, KV> model_;
  Replay step_;
  Tensor<std::int32_t, 1> token_, position_;  // (B) of the step
  Tensor<const float, 2> logits_;             // of the last pass
  std::vector<Logits> last_logits_;           // (B) rows of V, in host memory
  std::int64_t length_ = 0;                   // tokens of each sequence in the cache
};

}  // namespace llmc
