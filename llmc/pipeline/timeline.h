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

struct PipelineTimeline {
  std::vector<std::vector<TimedPass>> ranks;

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
  // From the end of a pass until its result is at the rank of the next one; 0 if that is the same
  // rank. Messages in one direction between two ranks are sent one after another.
  double message = 0;
  // Whether a rank computes while its own messages are on the way.
  bool overlaps_messages = true;
};

// The timeline of a schedule with these costs. Throws an Error that names the waiting
// ranks and cells if they wait for each other. check_passes must accept the schedule.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const PassCosts& costs);

// The same if messages take no time.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const std::function<double(const PipelinePass&)>& cost);

// The same if every pass takes one step.
PipelineTimeline timeline_in_steps(const PipelineSchedule& schedule, const PipelineShape& shape);

// Throws an Error unless the schedule is complete and can run.
void check_schedule(const PipelineSchedule& schedule, const PipelineShape& shape);

}  // namespace llmc
