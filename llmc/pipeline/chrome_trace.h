// Pipeline timelines in Chrome's trace event format (base/trace_events.h). Each rank of a timeline
// is a process: a row with its passes, and a row per direction with the messages that it sends.
// Those in one direction follow each other, but activations and gradients travel at the same time.
#pragma once

#include <string>
#include <vector>

#include "llmc/pipeline/timeline.h"

namespace llmc {

// A timeline in a trace.
struct TracedTimeline {
  std::string name;         // "rank 2, NAME" is the name of a process
  double microseconds = 1;  // in one unit of its times
  PipelineTimeline timeline;
};

// A trace in which each timeline begins at 0. Ranks with the same number are next to each other.
std::string chrome_trace(const std::vector<TracedTimeline>& timelines);

}  // namespace llmc
