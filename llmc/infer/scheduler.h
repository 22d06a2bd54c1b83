// The generation loop over a batch: sequences of different lengths, each in a slot. A slot whose
// sequence has ended starts the next one. Tokens are drawn on the device; a step, including the
// draw, is the replay of a graph. The host submits several steps, with a copy of what each one
// drew, and waits once to read them.
//
// The text of a sequence depends on its request and the sampling options, not on the batch: logits
// do not (model_pass.h), and random numbers depend on the seed, the number of the sample and the
// position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/replay.h"
#include "llmc/device/tensor.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

// A sequence to generate.
struct GenerationRequest {
  std::vector<std::int32_t> prompt{};  // at least one token, fewer than the context
  std::int64_t tokens = 128;           // maximum number of tokens to generate, at least 1
  std::uint64_t seed = 1337;
  std::uint32_t sample = 0;  // number of the sample of its prompt, below 2^24
};

struct SchedulerOptions {
  SamplingOptions sampling{};
  std::vector<std::int32_t> stop{};  // tokens that end a text and are not part of it
  // Tokens from this number on are never drawn; empty: all tokens of the model may be. A padded
  // vocabulary has embedding rows without a token.
  std::optional<std::int64_t> vocabulary{};
  // At the end of the context, read the last half of it again, as a prompt, and continue.
  bool slide = false;
  // Maximum number of steps, at least 1, that the host submits before it waits for their tokens. It
  // does not change the texts. A slot whose text ends earlier takes part in the other steps in
  // vain: by a stop token, by on_token() or because logits are not finite.
  std::int64_t steps_between_reads = 1;
};

// Functions that the loop calls. Sequences are numbered in the order in which next() returned them.
struct SchedulerCallbacks {
  std::function<std::optional<GenerationRequest>()> next;
  // A token of a sequence, and the natural logarithm of its probability under the softmax of the
  // unmodified logits. `false` ends the sequence.
  std::function<bool(std::int64_t sequence, std::int32_t token, float log_probability)> on_token;
  std::function<void(std::int64_t sequence, Finish finish)> on_finish;
  // Called before the steps of a read; `false` ends all sequences.
  std::function<bool()> on_step = [] { return true; };
};

class Scheduler {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `model` must outlive the scheduler.
  Scheduler(GenerationPass& model, const SchedulerOptions& options, MemoryPlan& plan);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Generates all sequences that callbacks.next returns. One whose logits are not finite ends with
  // Finish::not_finite.
  void run(const SchedulerCallbacks& callbacks);

  // Nodes of the graph of a step; 0 before the second step.
  std::int64_t graph_nodes() const { return step_.nodes(); }

  // Why the sequence ended that on_finish reported last with Finish::not_finite; may be empty.
  const std::string& fault() const { return fault_; }

  // How often the host has waited for tokens.
  std::int64_t reads() const { return num_reads_; }

 private:
  static constexpr std::int64_t kIdle = -1;

  // The sequence in a slot, or none.
  struct Sequence {
    std::int64_t index = kIdle;  // in the order of next()
    GenerationRequest request{};
    std::vector<std::int32_t> context{};  // all tokens that the cache holds or will hold next
    std::size_t num_read = 0;             // of them, read as a prompt
    std::int64_t num_generated = 0;
    std::uint64_t num_slides = 0;
  };

  // The number of tokens that may be drawn.
  std::int64_t V() const { return options_.vocabulary.value_or(model_.config().vocabulary); }
  std::int64_t B() const { return model_.shape().slots; }
  std::int64_t max_length() const { return model_.config().context; }
  Stream& stream() { return model_.stream(); }
  Sequence& sequence_of(std::int64_t b) { return sequences_[static_cast<std::size_t>(b)]; }

  void start();

  // ---- prompts ----

  // Gives idle slots the next sequences and reads their prompts. Returns whether there may be more
  // sequences.
  bool fill_slots();

  void check(const GenerationRequest& request) const;

  // Writes the state of a slot whose context is to be read as a prompt.
  void begin_reading(std::int64_t b);

  void write_slot(std::int64_t b, std::int32_t token, std::int64_t position, SlotFinish finish);

  // Reads the contexts of all slots in unread_ and delivers the token after each.
  void read_prompts();

  void draw_after_prompts(const Tensor<const float, 2>& logits,
                          const std::vector<std::int32_t>& ended);

  // ---- steps ----

  // Steps until the host must read tokens: no text may reach its length or the end of the context
  // before the last of them.
  std::int64_t steps_before_read() const;

  void draw(const Tensor<const float, 2>& logits, In<std::int32_t, 1> slots);

  // Submits the copy of the newest draw to row i of host_draws_.
  void copy_draws(std::int64_t i) {
    copy_to_host(host_draws_.data() + i * draws_.size(), draws_.data, draws_.size(), stream());
  }

  // Reads what was drawn in `count` draws and passes it on.
  void deliver(std::int64_t count);

  void deliver_slot(std::int64_t b, std::int64_t count);

  // Whether later steps still compute attention over the tokens of a slot.
  static bool holds_position(SlotFinish finish) {
    return finish == SlotFinish::active || finish == SlotFinish::not_finite;
  }

  // A text has all its tokens, or fills the context.
  void end_of_length(std::int64_t b);

  // Ends the sequence of a slot that the device has not ended.
  void end_early(std::int64_t b, SlotFinish finish, Finish reason);

  // A slot at position 0 costs the least attention.
  void clear_slot(std::int64_t b) { write_slot(b, 0, 0, SlotFinish::idle); }

  void end(std::int64_t b, Finish finish);

  void cancel_all();

  GenerationPass& model_;
  SchedulerOptions options_;
  std::vector<Sequence> sequences_;
  std::deque<std::int64_t> unread_;  // slots whose context is not read completely
  const SchedulerCallbacks* callbacks_ = nullptr;
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
