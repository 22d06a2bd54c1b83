// --dump-schedule: the timeline of a pipeline's passes, as its schedule implies it and as a step
// has measured it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/comm/mesh.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/pipeline/pipeline.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

// The passes of one pipeline in a step, in milliseconds from the begin of the step.
struct MeasuredTimeline {
  std::int64_t step = 0;
  PipelineTimeline timeline;
};

// The timeline of the pipeline of rank 0, from the passes that each rank has measured. All ranks
// call this together.
PipelineTimeline gather_timeline(const std::vector<TimedPass>& own, const Pipeline& pipeline,
                                 const Mesh& mesh, Exchange& exchange);

// Writes the file of --dump-schedule; does nothing without the flag. A page and a trace also show
// the timeline that --machine predicts, and the measured one; next to FILE.csv, which stays valid
// for --pp-schedule, it writes FILE.measured.csv.
void dump_schedule(const RunConfig& config, const std::optional<MeasuredTimeline>& measured = {});

}  // namespace llmc
