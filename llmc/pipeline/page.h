// Pictures of pipeline timelines: one HTML file that needs no network. A row per rank, a box per
// pass; forward passes are blue, backward passes orange, and later chunks darker.
#pragma once

#include <string>
#include <vector>

#include "llmc/pipeline/timeline.h"

namespace llmc {

// A timeline on a page. `unit` is that of its times, such as "ms" or "steps".
struct NamedTimeline {
  std::string name, unit;
  PipelineTimeline timeline;
};

// The page of several timelines of one pipeline, each below the other on its own scale, in the
// style of the page of a run (scripts/run_view). A picture is wide enough for the name of its
// shortest pass, if 8000 pixels suffice.
std::string pipeline_page(const std::string& title, const PipelineShape& shape,
                          const std::vector<NamedTimeline>& timelines);

}  // namespace llmc
