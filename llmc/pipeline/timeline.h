// When the passes of a pipeline schedule begin and end, from the time that each takes, and whether
// a schedule can run at all.
//
// A pass begins as soon as its rank has finished the passes before it and its input is there: a
// forward pass needs that of the stage before, a backward pass that of the stage after; the
// backward pass of the last stage needs its forward pass. A message takes no time and never waits,
// unless PassCosts is given.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "llmc/pipeline/schedule.h"

namespace llmc {

struct TimedPass {
  PipelinePass pass;
  double begin = 0, end = 0;
};

// The message with the result of a pass, from the begin of its transfer to its arrival.
struct TimedMessage {
  PipelinePass pass;
  double begin = 0, end = 0;
};

struct PipelineTimeline {
  std::vector<std::vector<TimedPass>> ranks = {};
  // The messages that each rank sends, in the order of its passes. Empty if they take no time.
  std::vector<std::vector<TimedMessage>> messages = {};

  // Begin of the first pass of any rank. A rank has passes, in the order of time.
  double begin() const;
  // From there to the end of the last pass of any rank.
  double duration() const;
  // Idle time of all ranks divided by their busy time. With equal costs of all stages, the
  // schedules of schedule.h have (p - 1) / (v m).
  double bubble() const;
};

namespace pipeline_detail {

// "rank 1, cell 0B1"
inline std::string cell(std::size_t rank, const PipelinePass& pass) {
  return "rank " + std::to_string(rank) + ", cell " + pass.name();
}

}  // namespace pipeline_detail

// The times of passes and messages, in any unit.
struct PassCosts {
  std::function<double(const PipelinePass&)> pass;
  // From the begin of a transfer until the result of a pass is at the rank of the next one; 0 if
  // that is the same rank. A rank sends activations one after another, and so gradients.
  double message = 0;
  // Whether a rank computes while its own messages are on the way.
  bool overlaps_messages = true;
};

// The passes of a schedule in an order in which each comes after those that it waits for. It does
// not depend on costs, so many timelines of one schedule need it once.
class OrderedSchedule {
 public:
  // Throws an Error that names the waiting ranks and cells if they wait for each other.
  // check_passes must accept the schedule.
  OrderedSchedule(const PipelineSchedule& schedule, const PipelineShape& shape);

  PipelineTimeline timeline(const PassCosts& costs) const;
  // The duration of this timeline, without the memory for it.
  double duration(const PassCosts& costs) const;

 private:
  struct Step {
    PipelinePass pass;
    int rank;
    int input;  // 1 + index of the step whose result it reads; 0: none
    int link;   // of `links`; kNoLink: the result stays on the rank
  };
  static constexpr int kNoLink = -1;

  template <class OnPass, class OnMessage>
  void simulate(const PassCosts& costs, const OnPass& on_pass, const OnMessage& on_message) const;

  std::vector<Step> steps_;
  std::vector<std::size_t> num_passes_;  // of each rank
};

// The timeline of a schedule with these costs. Throws as OrderedSchedule does.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const PassCosts& costs);

// The same timeline if messages take no time.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const std::function<double(const PipelinePass&)>& cost);

// The same timeline if every pass takes one step.
PipelineTimeline timeline_in_steps(const PipelineSchedule& schedule, const PipelineShape& shape);

// Throws an Error unless the schedule is complete and can run.
void check_schedule(const PipelineSchedule& schedule, const PipelineShape& shape);

}  // namespace llmc
