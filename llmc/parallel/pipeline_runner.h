// Runs the passes of a training step: those of one rank, or those of a pipeline rank in the order
// of its schedule (pipeline/schedule.h).
//
// Each pass works on a slot of activations, from the forward pass of a micro-batch through a stage
// to its backward pass. No message waits for the passes of its receiver. The output of a stage is
// sent from the slot: the gradient that comes back shows that it has arrived before the slot is
// used again. (A stage without backward passes, in which nothing learns, waits for that instead.) A
// gradient is sent from one of as many buffers as the receiver has slots, used in turn: the
// receiver needs a slot for each gradient that it has not received yet.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "llmc/device/phase_clock.h"
#include "llmc/device/rows.h"
#include "llmc/models/model_runner.h"
#include "llmc/parallel/step_batches.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

template <class T>
class PipelineRunner {
 public:
  // The runner must outlive the object.
  explicit PipelineRunner(ModelRunner<T>& runner)
      : runner_(runner), pipeline_(runner.shape().pipeline), slots_(runner.slots()) {
    for (std::size_t i = 0; i < runner.batches().buffers(); ++i) free_buffers_.push_back(i);
    if (pipeline_.single()) return;
    passes_per_batch_ = pipeline_.passes_per_micro_batch(rank());
    sent_gradients_.resize(runner.sent_gradients());
  }
  PipelineRunner(const PipelineRunner&) = delete;
  PipelineRunner& operator=(const PipelineRunner&) = delete;

  // Runs all passes of a step on this rank. Adds to the parameter gradients of the model's source,
  // and to the loss. `clock` times data, forward and backward passes; null: nothing is timed.
  void run(const StepBatches& batches, PhaseClock* clock = nullptr) {
    batches_ = &batches;
    clock_ = clock;
    num_read_ = 0;
    num_timed_ = 0;
    if (pipeline_.single()) {
      for (std::int64_t i = 0; i < batches.count; ++i) {
        forward(0, i);
        backward(0, i);
      }
      return;
    }
    require(batches.count == pipeline_.shape.micro_batches,
            "the schedule of the pipeline has another number of micro-batches than the step");
    for (const PipelinePass& pass : pipeline_.passes(rank())) {
      pass.kind == PassKind::forward ? forward(pass.stage, pass.micro_batch)
                                     : backward(pass.stage, pass.micro_batch);
    }
  }

  // Whether the gradient of the residual stream is finite where the last backward pass ended.
  bool left_finite_gradient() {
    std::vector<T> values(static_cast<std::size_t>(last_gradient_.size()));
    copy_to_host(values.data(), static_cast<const T*>(last_gradient_.data), last_gradient_.size(),
                 stream());
    stream().synchronize();
    return std::ranges::all_of(values, [](T value) { return std::isfinite(to_float(value)); });
  }

  // Records when passes begin and end, from the next step on. `begin` is the time 0 of each step.
  void time_passes(const Event* begin) { time_zero_ = begin; }
  // The passes of the last step with their times in milliseconds. Waits for them.
  std::vector<TimedPass> timed_passes() {
    std::vector<TimedPass> passes;
    for (std::size_t i = 0; i < num_timed_; ++i) {
      TimedEvents& events = *timed_[i];
      events.end.synchronize();
      passes.push_back({events.pass, milliseconds_between(*time_zero_, events.begin),
                        milliseconds_between(*time_zero_, events.end)});
    }
    return passes;
  }

 private:
  struct Slot {
    int stage = -1;  // -1: the slot is free
    std::int64_t micro_batch = 0;
    std::int64_t sent_output = 0;  // number of the message; 0: none
  };
  struct BatchInUse {
    DeviceBatch batch;
    std::size_t buffer = 0;
    int passes_left = 0;
  };
  struct TimedEvents {
    PipelinePass pass;
    Event begin, end;
  };

  Ranks& ranks() { return runner_.context().ranks; }
  Stream& stream() { return runner_.context().stream; }
  int rank() { return ranks().pipeline_rank(); }
  const Stage& stage_of(int stage) {
    return runner_.model().stages()[static_cast<std::size_t>(stage / pipeline_.shape.ranks)];
  }

  void forward(int number, std::int64_t micro_batch) {
    const Stage& stage = stage_of(number);
    const std::size_t slot = slot_of(-1, 0);
    require(slot < slots_.size(), "a pipeline rank has no free slot for a forward pass");
    slots_[slot].stage = number;
    slots_[slot].micro_batch = micro_batch;
    BatchInUse& in_use = batch_of(micro_batch);
    Activations<T>& saved = runner_.activations(slot);
    const RankRows rows = runner_.context().tensor.rows_of_rank(in_use.batch.rows());
    if (!stage.embedding) {
      ranks().receive_activations(flat(runner_.model().stage_input(saved, rows)), stream());
    }
    reuse_output(slots_[slot]);
    mark(Phase::forward);
    PassOptions options = batches_->options(micro_batch);
    options.has_backward = number >= pipeline_.first_backward;
    timed({number, PassKind::forward, static_cast<int>(micro_batch)},
          [&] { runner_.model().forward(stage, saved, in_use.batch, runner_.context(), options); });
    mark(Phase::other);
    if (!stage.head) {
      ranks().exchange_messages(stream(), [&] {
        slots_[slot].sent_output = ranks().channels().activations_out->send(
            flat(runner_.model().stage_output(saved, rows)), stream());
      });
    }
    if (!options.has_backward) slots_[slot].stage = -1;
    release_batch(micro_batch, in_use);
  }

  void backward(int number, std::int64_t micro_batch) {
    const Stage& stage = stage_of(number);
    const std::size_t slot = slot_of(number, micro_batch);
    BatchInUse& in_use = batch_of(micro_batch);
    Activations<T>& saved = runner_.activations(slot);
    const RankRows rows = runner_.context().tensor.rows_of_rank(in_use.batch.rows());
    const Tensor<T, 2> gradient = runner_.model().residual_gradient(rows);
    if (!stage.head) receive_gradient(gradient);
    mark(Phase::backward);
    timed({number, PassKind::backward, static_cast<int>(micro_batch)}, [&] {
      runner_.model().backward(stage, saved, in_use.batch, batches_->loss, runner_.context(),
                               batches_->options(micro_batch));
    });
    mark(Phase::other);
    last_gradient_ = gradient;
    if (number > pipeline_.first_backward) send_gradient(gradient, rows);
    slots_[slot].stage = -1;
    release_batch(micro_batch, in_use);
  }

  // ---- messages ----

  // Later work may overwrite what the slot sent in its last use.
  void reuse_output(Slot& slot) {
    const std::int64_t message = std::exchange(slot.sent_output, 0);
    if (message > 0) ranks().channels().activations_out->sent(message, stream());
  }

  void receive_gradient(const Tensor<T, 2>& gradient) {
    ranks().wait_for_message(stream(), [&] {
      ranks().channels().gradients_in->expect(flat(gradient), stream());
      ranks().channels().gradients_in->arrive(stream());
    });
  }

  void send_gradient(const Tensor<T, 2>& gradient, const RankRows& rows) {
    ranks().exchange_messages(stream(), [&] {
      Channel& channel = *ranks().channels().gradients_out;
      std::int64_t& last = sent_gradients_[next_gradient_];
      if (last > 0) channel.sent(last, stream());
      const Tensor<T, 2> message = runner_.sent_gradient(next_gradient_, rows);
      copy_on_device(message.data, static_cast<const T*>(gradient.data), gradient.size(), stream());
      last = channel.send(flat(message), stream());
      next_gradient_ = (next_gradient_ + 1) % sent_gradients_.size();
    });
  }

  // ---- slots and batches ----

  // The slot of a micro-batch in a stage; stage -1: a free one. The number of slots if there is
  // none.
  std::size_t slot_of(int stage, std::int64_t micro_batch) const {
    std::size_t i = 0;
    for (; i < slots_.size(); ++i) {
      const bool is_same = stage < 0 || slots_[i].micro_batch == micro_batch;
      if (slots_[i].stage == stage && is_same) break;
    }
    return i;
  }

  // The micro-batch in device memory, where its first pass puts it. Micro-batches before it that no
  // pass has needed yet stay in host memory.
  BatchInUse& batch_of(std::int64_t micro_batch) {
    const auto present = in_use_.find(micro_batch);
    if (present != in_use_.end()) return present->second;
    mark(Phase::data);
    const ProfileScope scope("data", stream());
    while (num_read_ <= micro_batch) waiting_.emplace(num_read_++, batches_->next());
    const std::size_t buffer = free_buffers_.front();
    free_buffers_.pop_front();
    const auto prepared = waiting_.extract(micro_batch);
    BatchInUse& batch = in_use_[micro_batch];
    batch = {runner_.batches().put_into(buffer, prepared.mapped(), stream()), buffer,
             pipeline_.single() ? 2 : passes_per_batch_[static_cast<std::size_t>(micro_batch)]};
    mark(Phase::other);
    return batch;
  }

  void release_batch(std::int64_t micro_batch, BatchInUse& in_use) {
    if (--in_use.passes_left > 0) return;
    free_buffers_.push_back(in_use.buffer);
    in_use_.erase(micro_batch);
  }

  // ---- time ----

  void mark(Phase phase) {
    if (clock_ != nullptr) clock_->mark(phase, stream());
  }

  template <class Pass>
  void timed(const PipelinePass& pass, const Pass& run_pass) {
    if (time_zero_ == nullptr) return run_pass();
    if (num_timed_ == timed_.size()) timed_.push_back(std::make_unique<TimedEvents>());
    TimedEvents& events = *timed_[num_timed_++];
    events.pass = pass;
    events.begin.record(stream());
    run_pass();
    events.end.record(stream());
  }

  ModelRunner<T>& runner_;
  const Pipeline& pipeline_;
  std::vector<int> passes_per_batch_;  // on this rank, by micro-batch
  std::vector<Slot> slots_;
  std::vector<std::int64_t> sent_gradients_;  // number of the last message of each buffer; 0: none
  std::size_t next_gradient_ = 0;             // buffer
  Tensor<T, 2> last_gradient_{};              // of the residual stream, in the workspace
  const StepBatches* batches_ = nullptr;      // of the present step
  PhaseClock* clock_ = nullptr;
  std::int64_t num_read_ = 0;  // micro-batches
  std::map<std::int64_t, PreparedBatch> waiting_;
  std::map<std::int64_t, BatchInUse> in_use_;
  std::deque<std::size_t> free_buffers_;
  const Event* time_zero_ = nullptr;
  std::vector<std::unique_ptr<TimedEvents>> timed_;  // reused in each step
  std::size_t num_timed_ = 0;
};

}  // namespace llmc
