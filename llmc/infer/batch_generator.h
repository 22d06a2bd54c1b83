// The generation loop over a batch: sequences of different lengths, each in a slot. A slot whose
// sequence has ended starts the next one. Tokens are drawn on the device; a step, including the
// draw, is the replay of a graph. The host submits several steps, with a copy of what each one
// drew, and waits once to read them.
//
// The text of a sequence depends on its request and the sampling options, not on the batch: logits
// do not (batch_model.h), and random numbers depend on the seed, the number of the sample and the
// position.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/device/replay.h"
#include "llmc/device/rows.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

// A sequence to generate.
struct SequenceRequest {
  std::vector<std::int32_t> prompt{};  // at least one token, fewer than the context
  std::int64_t tokens = 128;           // maximum number of tokens to generate, at least 1
  std::uint64_t seed = 1337;
  std::uint32_t sample = 0;  // number of the sample of its prompt, below 2^24
};

struct BatchOptions {
  SamplingOptions sampling{};
  std::optional<std::int32_t> stop{};  // the token that ends a text and is not part of it
  // At the end of the context, read the last half of it again, as a prompt, and continue.
  bool slide = false;
  // Maximum number of steps, at least 1, that the host submits before it waits for their tokens. It
  // does not change the texts. A slot whose text ends earlier by the stop token, by on_token() or
  // because logits are not finite takes part in the other steps in vain.
  std::int64_t steps_between_reads = 1;
};

// Functions that the loop calls. Sequences are numbered in the order in which next() returned them.
struct BatchCallbacks {
  std::function<std::optional<SequenceRequest>()> next;
  // A token of a sequence, and the natural logarithm of its probability under the softmax of the
  // unmodified logits. `false` ends the sequence.
  std::function<bool(std::int64_t sequence, std::int32_t token, float log_probability)> on_token;
  std::function<void(std::int64_t sequence, Finish finish)> on_finish;
  // Called before the steps of a read; `false` ends all sequences.
  std::function<bool()> on_step = [] { return true; };
};

class BatchGenerator {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `model` must outlive the generator.
  BatchGenerator(GenerationPass& model, const BatchOptions& options, MemoryPlan& plan)
      : model_(model),
        options_(options),
        slots_(static_cast<std::size_t>(model.shape().slots)),
        host_draws_(2 * model.shape().slots * options.steps_between_reads),
        host_finish_(model.shape().slots) {
    require(options.steps_between_reads >= 1, "the host must read tokens after at least one step");
    const std::int64_t V = model.config().vocabulary;
    for (Tensor<std::int32_t, 1>* const ids :
         {&state_.token, &state_.position, &state_.finish, &row_slot_}) {
      plan.reserve("batch", *ids, B());
    }
    plan.reserve("batch", state_.history, B(), model.config().context);
    plan.reserve("batch", draws_, 2, B());
    plan.reserve("batch", sampling_, B());
    plan.reserve("batch", bias_ids_, std::ssize(options.sampling.logit_bias));
    plan.reserve("batch", bias_values_, std::ssize(options.sampling.logit_bias));
    plan.reserve("logits", scratch_, sampling_scratch(B(), V));
    for (const auto& [token, value] : options.sampling.logit_bias) {
      require(token >= 0 && token < V, "a bias names a token that the model does not have");
      host_bias_ids_.push_back(token);
      host_bias_values_.push_back(static_cast<float>(value));
    }
  }
  BatchGenerator(const BatchGenerator&) = delete;
  BatchGenerator& operator=(const BatchGenerator&) = delete;

  // Generates all sequences that callbacks.next returns. One whose logits are not finite ends with
  // Finish::not_finite.
  void run(const BatchCallbacks& callbacks) {
    callbacks_ = &callbacks;
    next_sequence_ = 0;
    start();
    bool more = true;
    for (;;) {
      while (more && num_active_ < B()) more = fill_slots();
      if (num_active_ == 0) break;
      if (!callbacks.on_step()) return cancel_all();
      const std::int64_t count = steps_before_read();
      for (std::int64_t i = 0; i < count; ++i) {
        step_.run(stream(), [this] { draw(model_.step(state_.token, state_.position), {}); });
        copy_draws(i);
      }
      deliver(count);
    }
  }

  // Nodes of the graph of a step; 0 before the second step.
  std::int64_t graph_nodes() const { return step_.nodes(); }

  // Why the sequence ended that on_finish reported last with Finish::not_finite; may be empty.
  const std::string& fault() const { return fault_; }

  // How often the host has waited for tokens.
  std::int64_t reads() const { return num_reads_; }

 private:
  static constexpr std::int64_t kIdle = -1;

  // The host's part of a slot.
  struct Slot {
    std::int64_t sequence = kIdle;
    SequenceRequest request{};
    std::vector<std::int32_t> context{};  // all tokens that the cache holds or will hold next
    std::size_t num_read = 0;             // of them, read as a prompt
    std::int64_t num_generated = 0;
    std::uint64_t num_slides = 0;
  };

  std::int64_t B() const { return model_.shape().slots; }
  std::int64_t max_length() const { return model_.config().context; }
  Stream& stream() { return model_.stream(); }
  Slot& slot(std::int64_t b) { return slots_[static_cast<std::size_t>(b)]; }

  void start() {
    model_.clear();
    num_active_ = 0;
    slots_.assign(slots_.size(), {});
    unread_.clear();
    const std::vector<SlotSampling> sampling(slots_.size(), slot_sampling({}, 0, 0, 0, -1));
    const auto idle = std::vector(slots_.size(), static_cast<std::int32_t>(SlotFinish::idle));
    fill_zero(state_.token.data, B(), stream());
    fill_zero(state_.position.data, B(), stream());
    drawn_ = make_tensor(draws_.data, B());
    state_.log_probability = make_tensor(reinterpret_cast<float*>(draws_.data + B()), B());
    fill_zero(draws_.data, draws_.size(), stream());
    copy_to_device(state_.finish.data, idle.data(), B(), stream());
    copy_to_device(sampling_.data, sampling.data(), B(), stream());
    const std::int64_t count = std::ssize(host_bias_ids_);
    if (count > 0) copy_to_device(bias_ids_.data, host_bias_ids_.data(), count, stream());
    if (count > 0) copy_to_device(bias_values_.data, host_bias_values_.data(), count, stream());
    stream().synchronize();
  }

  // ---- prompts ----

  // Gives idle slots the next sequences and reads their prompts. Returns whether there may be more
  // sequences.
  bool fill_slots() {
    bool more = true;
    for (std::int64_t b = 0; b < B() && more; ++b) {
      if (slot(b).sequence != kIdle) continue;
      std::optional<SequenceRequest> request = callbacks_->next();
      if (!request) {
        more = false;
        break;
      }
      check(*request);
      Slot& s = slot(b) = Slot{};
      s.sequence = next_sequence_++;
      s.context = request->prompt;
      s.request = std::move(*request);
      ++num_active_;
      begin_reading(b);
    }
    read_prompts();
    return more;
  }

  void check(const SequenceRequest& request) const {
    require(!request.prompt.empty() && std::ssize(request.prompt) < max_length(),
            "a prompt has no tokens, or leaves no room in the context");
    require(request.tokens >= 1, "at least one token must be generated");
    const std::int64_t length = std::ssize(request.prompt) + request.tokens - 1;
    require(std::min(length, max_length() - 1) <= model_.shape().capacity,
            "a sequence does not fit the cache");
  }

  // Writes the state of a slot whose context is to be read as a prompt.
  void begin_reading(std::int64_t b) {
    Slot& s = slot(b);
    model_.clear_faults(b);
    s.num_read = 0;
    const auto length = static_cast<std::int64_t>(s.context.size());
    const std::int64_t remaining = s.request.tokens - s.num_generated;
    const std::int64_t last_position = std::min(length + remaining, max_length()) - 1;
    // After a slide, positions occur again: another seed draws other numbers there.
    const std::uint64_t seed = s.request.seed + s.num_slides * 0x9e3779b97f4a7c15u;
    const SlotSampling sampling =
        slot_sampling(options_.sampling, seed, s.request.sample,
                      static_cast<std::int32_t>(last_position), options_.stop.value_or(-1));
    copy_to_device(sampling_.data + b, &sampling, 1, stream());
    copy_to_device(state_.history.data + b * max_length(), s.context.data(), length, stream());
    write_slot(b, s.context.back(), length - 1, SlotFinish::active);
    unread_.push_back(b);
  }

  void write_slot(std::int64_t b, std::int32_t token, std::int64_t position, SlotFinish finish) {
    const std::int32_t values[] = {token, static_cast<std::int32_t>(position),
                                   static_cast<std::int32_t>(finish)};
    copy_to_device(state_.token.data + b, &values[0], 1, stream());
    copy_to_device(state_.position.data + b, &values[1], 1, stream());
    copy_to_device(state_.finish.data + b, &values[2], 1, stream());
    stream().synchronize();
  }

  // Reads the contexts of all slots in unread_ and delivers the token after each.
  void read_prompts() {
    while (!unread_.empty()) {
      std::vector<PromptPiece> pieces;
      std::vector<std::int32_t> ended;
      std::int64_t room = model_.shape().chunk;
      while (room > 0 && !unread_.empty()) {
        const std::int64_t b = unread_.front();
        Slot& s = slot(b);
        const std::size_t count =
            std::min(static_cast<std::size_t>(room), s.context.size() - s.num_read);
        const bool is_last = s.num_read + count == s.context.size();
        pieces.push_back({b, static_cast<std::int64_t>(s.num_read),
                          std::span<const std::int32_t>(s.context).subspan(s.num_read, count),
                          is_last});
        s.num_read += count;
        room -= static_cast<std::int64_t>(count);
        if (!is_last) break;  // the pass is full
        ended.push_back(static_cast<std::int32_t>(b));
        unread_.pop_front();
      }
      const Tensor<const float, 2> logits = model_.read_prompts(pieces);
      if (!ended.empty()) draw_after_prompts(logits, ended);
    }
  }

  void draw_after_prompts(const Tensor<const float, 2>& logits,
                          const std::vector<std::int32_t>& ended) {
    const std::int64_t count = std::ssize(ended);
    copy_to_device(row_slot_.data, ended.data(), count, stream());
    stream().synchronize();
    draw(logits, first_rows(row_slot_, count));
    copy_draws(0);
    deliver(1);
  }

  // ---- steps ----

  // Steps until the host must read tokens: no text may reach its length or the end of the context
  // before the last of them.
  std::int64_t steps_before_read() const {
    std::int64_t count = options_.steps_between_reads;
    for (const Slot& s : slots_) {
      if (s.sequence == kIdle) continue;
      count = std::min(
          {count, s.request.tokens - s.num_generated, max_length() - std::ssize(s.context)});
    }
    return count;
  }

  void draw(const Tensor<const float, 2>& logits, In<std::int32_t, 1> slots) {
    sample_next_tokens(state_, drawn_, logits, model_.config().vocabulary, slots, sampling_,
                       bias_ids_, bias_values_, scratch_, stream());
  }

  // Submits the copy of the newest draw to row i of host_draws_.
  void copy_draws(std::int64_t i) {
    copy_to_host(host_draws_.data() + i * draws_.size(), draws_.data, draws_.size(), stream());
  }

  // Reads what was drawn in `count` draws and passes it on.
  void deliver(std::int64_t count) {
    copy_to_host(host_finish_.data(), state_.finish.data, B(), stream());
    stream().synchronize();
    ++num_reads_;
    for (std::int64_t b = 0; b < B(); ++b) {
      if (slot(b).sequence != kIdle) deliver_slot(b, count);
    }
    if (!unread_.empty()) read_prompts();
  }

  void deliver_slot(std::int64_t b, std::int64_t count) {
    Slot& s = slot(b);
    const auto finish = static_cast<SlotFinish>(host_finish_.data()[b]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t* const draws = host_draws_.data() + i * draws_.size();
      const std::int32_t token = draws[b];
      if (token < 0 || token == options_.stop) break;  // the slot drew no token that is text
      s.context.push_back(token);
      ++s.num_generated;
      const auto log_probability = std::bit_cast<float>(draws[B() + b]);
      if (callbacks_->on_token(s.sequence, token, log_probability)) continue;
      if (holds_position(finish)) clear_slot(b);
      return end(b, Finish::cancelled);
    }
    if (finish == SlotFinish::stop) return end(b, Finish::stop);
    if (finish == SlotFinish::length) return end_of_length(b);
    if (finish != SlotFinish::not_finite) return;
    fault_ = model_.fault_text(b);
    clear_slot(b);
    end(b, Finish::not_finite);
  }

  // Whether later steps still compute attention over the tokens of a slot.
  static bool holds_position(SlotFinish finish) {
    return finish == SlotFinish::active || finish == SlotFinish::not_finite;
  }

  // A text has all its tokens, or fills the context.
  void end_of_length(std::int64_t b) {
    Slot& s = slot(b);
    if (s.num_generated == s.request.tokens) return end(b, Finish::length);
    if (!options_.slide) return end(b, Finish::context);
    s.context.erase(s.context.begin(),
                    s.context.end() - std::max<std::int64_t>(1, max_length() / 2));
    ++s.num_slides;
    begin_reading(b);
  }

  // A slot at position 0 costs the least attention.
  void clear_slot(std::int64_t b) { write_slot(b, 0, 0, SlotFinish::idle); }

  void end(std::int64_t b, Finish finish) {
    const std::int64_t sequence = slot(b).sequence;
    slot(b) = Slot{};
    --num_active_;
    callbacks_->on_finish(sequence, finish);
  }

  void cancel_all() {
    for (std::int64_t b = 0; b < B(); ++b) {
      if (slot(b).sequence != kIdle) end(b, Finish::cancelled);
    }
  }

  GenerationPass& model_;
  BatchOptions options_;
  std::vector<Slot> slots_;
  std::deque<std::int64_t> unread_;  // slots whose context is not read completely
  const BatchCallbacks* callbacks_ = nullptr;
  std::int64_t next_sequence_ = 0, num_active_ = 0, num_reads_ = 0;
  std::string fault_;
  SlotState state_;
  // (2, B) of the newest draw: tokens, and the bits of log-probabilities. One copy moves both.
  Tensor<std::int32_t, 2> draws_;
  Tensor<std::int32_t, 1> drawn_, row_slot_;  // (B); drawn_ is a row of draws_
  Tensor<SlotSampling, 1> sampling_;          // (B)
  Tensor<std::int32_t, 1> bias_ids_;
  Tensor<float, 1> bias_values_;
  Tensor<float, 1> scratch_;
  Replay step_;
  std::vector<std::int32_t> host_bias_ids_;
  std::vector<float> host_bias_values_;
  PinnedBuffer<std::int32_t> host_draws_;   // (steps_between_reads, 2, B)
  PinnedBuffer<std::int32_t> host_finish_;  // (B)
};

}  // namespace llmc
