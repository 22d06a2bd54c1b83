// The line that each process of a run writes first into the log: its settings, for plots and
// exports.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/io/run_log.h"
#include "llmc/train/run/recorded_run.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run_position.h"

namespace llmc {

// {"step": 10, "run": "resumed", "checkpoint": "run/step_000010", "tokenizer_xxh64": "...",
// "bytes_per_token": 4.2, "--lr": 0.0006, ...}, with "started" instead of "resumed" for a new run,
// which has no checkpoint. `bytes_per_token` is that of the validation text. `planned_memory`, the
// bytes that each rank allocates on its device, is "planned_mem_mb_ranks".
LogRecord run_record(const RunPosition& position, const RunData& data,
                     const std::optional<RecordedRun>& resumed,
                     const std::vector<std::int64_t>& planned_memory);

}  // namespace llmc
