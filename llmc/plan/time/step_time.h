// The predicted time of a step: the work of each pass and the bytes of each collective, divided by
// the constants of a machine and a program, in the order of the schedule that runs.
//
//   compute   products take start + FLOP / rate, other operations their bytes / bandwidth
//   tensor    a ring all-reduce of n ranks: start (1 + log2 n) + 2 (n - 1) / n bytes / bandwidth
//   pipeline  the schedule's passes with these times (pipeline/timeline.h)
//   data      the reduction of gradients and the gathers of weights, as far as nothing hides them
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "llmc/pipeline/timeline.h"
#include "llmc/plan/time/machine.h"
#include "llmc/plan/time/sent_bytes.h"
#include "llmc/plan/time/software.h"
#include "llmc/plan/time/timed_model.h"

namespace llmc {

// Seconds of one step: the parts add up to `total`.
struct StepTime {
  double compute = 0;    // of the rank with most work, without communication
  double tensor = 0;     // its collectives in the tensor group
  double pipeline = 0;   // messages that it waits for, and the bubble
  double data = 0;       // exposed collectives between data ranks, and of a tied embedding
  double optimizer = 0;  // the update, and offloaded state that the rank waits for
  double total = 0;
};

// Seconds that one rank computes in a step, by kind of operation.
struct ComputeTime {
  double products = 0;
  double attention = 0;  // scores, probabilities and what they multiply
  double others = 0;     // operations that read and write memory

  double all() const { return products + attention + others; }
  ComputeTime operator+(const ComputeTime& other) const {
    return {products + other.products, attention + other.attention, others + other.others};
  }
  ComputeTime operator*(double times) const {
    return {products * times, attention * times, others * times};
  }
};

class StepPredictor {
 public:
  StepPredictor(Machine machine, Software software)
      : machine_(std::move(machine)), software_(std::move(software)) {}

  const Machine& machine() const { return machine_; }
  const Software& software() const { return software_; }
  // Schedules of layouts that were predicted are kept.
  void set_machine(const Machine& machine) { machine_ = machine; }

  // `sent`: the bytes that ranks send; null: those of the sizes of the model.
  StepTime predict(const TimedModel& model, const Layout& layout, const SentBytes* sent = nullptr);

  // The bytes of the passes and messages that predict() simulates, and of its other collectives.
  GroupBytes simulated_bytes(const Layout& layout, const SentBytes& sent);

  // The passes and messages of a pipeline in seconds, with these layers (stages.h) and this
  // schedule.
  PipelineTimeline timeline(const TimedModel& model, const Layout& layout,
                            const std::vector<std::int64_t>& bounds,
                            const OrderedSchedule& schedule) const;

  // A time that no step with this layout falls below, without a simulation: `total` is at most that
  // of predict().
  StepTime lower_bound(const TimedModel& model, const Layout& layout) const;

  // The passes of the rank with most work, without communication.
  ComputeTime compute_time(const TimedModel& model, const Layout& layout) const;
  // The update.
  double optimizer_time(const TimedModel& model, const Layout& layout) const;

 private:
  // Seconds of a pass: what the rank computes, and its collectives in the tensor group.
  struct PassTime {
    ComputeTime compute;
    double tensor = 0;
    double all() const { return compute.all() + tensor; }
    PassTime operator+(const PassTime& other) const {
      return {compute + other.compute, tensor + other.tensor};
    }
    PassTime operator*(double times) const { return {compute * times, tensor * times}; }
  };

  // The passes of one micro-batch through each stage, and the sums of each rank's passes.
  struct Passes {
    std::vector<PassTime> forward, backward, ranks;

    const PassTime& busiest() const;
    PassCosts costs(double message, bool overlaps) const;
  };
  // `bounds`: the layers of the stages.
  Passes passes_of(const TimedModel& model, const Layout& layout,
                   const std::vector<std::int64_t>& bounds, const SentBytes* sent) const;
  Passes passes_of(const TimedModel& model, const Layout& layout,
                   const SentBytes* sent = nullptr) const;

  double product(double M, double N, double K) const;
  double values_bytes(double values) const { return values * software_.weight_bytes; }
  double attention_rate() const;
  double scores(const TimedModel& model, const Layout& layout) const;
  PassTime layer_forward(const TimedModel& model, const Layout& layout) const;
  PassTime layer_backward(const TimedModel& model, const Layout& layout) const;
  double accumulation(const TimedModel& model, const Layout& layout, double layers,
                      bool has_head) const;
  ComputeTime head_forward(const TimedModel& model, const Layout& layout) const;
  double tensor_bandwidth(const Layout& layout) const;
  double tensor_sums(const TimedModel& model, const Layout& layout, double count) const;

  double activation_bytes(const TimedModel& model, const Layout& layout) const;
  // Whether the program hides this communication, on this machine.
  bool hides(double overlaps) const;
  double collective_start(int ranks) const;
  double all_reduce(double bytes, int ranks, double bandwidth) const;
  double data_bandwidth(const Layout& layout) const;
  double message(const TimedModel& model, const Layout& layout,
                 const SentBytes* sent = nullptr) const;
  // Seconds of the collectives of a step that are not in passes of a tensor group, as if nothing
  // hid them.
  struct DataTime {
    double gathers = 0, reductions = 0;  // of weights and gradients, between data ranks
    double others = 0;  // the gradient of a tied embedding; if they are counted, also scalars
  };
  DataTime data_work(const TimedModel& model, const Layout& layout, const SentBytes* sent) const;
  double others_time(const TimedModel& model, const Layout& layout, const SentBytes* sent) const;
  // The part of them that takes time: `passes` hide gathers, `last_backward` the reduction.
  double exposed_data(const TimedModel& model, const Layout& layout, const DataTime& work,
                      double passes, double last_backward) const;
  // Transfers to and from the host that nothing hides.
  double host_time(const TimedModel& model, const Layout& layout, double passes,
                   const SentBytes* sent) const;
  double updated_parameters(const TimedModel& model, const Layout& layout) const;
  double rank_parameters(const TimedModel& model, const Layout& layout) const;
  double learning_parameters(const TimedModel& model, const Layout& layout) const;

  const OrderedSchedule& schedule_of(const Layout& layout);

  Machine machine_;
  Software software_;
  std::map<std::tuple<int, int, int>, OrderedSchedule> schedules_;
};

}  // namespace llmc
