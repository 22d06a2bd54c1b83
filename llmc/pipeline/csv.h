// Pipeline schedules as CSV, in the form of torch.distributed.pipelining: a row per rank, a cell
// per pass, such as "2F0". Empty cells are idle steps and mean nothing to a reader.
#pragma once

#include <string>
#include <string_view>

#include "llmc/pipeline/schedule.h"

namespace llmc {

// Columns are steps of equal length, so a cell is where its pass would run if all took one step.
std::string pipeline_csv(const PipelineSchedule& schedule, const PipelineShape& shape);

// Reads a schedule. `name` is that of the file. Throws an Error that names rank and cell if a cell
// is no supported pass.
PipelineSchedule parse_pipeline_csv(std::string_view text, const std::string& name);

}  // namespace llmc
