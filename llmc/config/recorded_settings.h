// The settings of a run that its checkpoints record. A resumed run uses them for every flag that is
// not typed, and reports which of them changed.
#pragma once

#include <string>
#include <vector>

#include "llmc/config/setting.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/io/checkpoint/manifest.h"

namespace llmc {

// Whether checkpoints keep the value of a setting.
inline bool is_recorded(const Setting<TrainProgram>& row) {
  return row.on_resume != OnResume::indirect && row.on_resume != OnResume::process;
}

// Maps flag to value, for every recorded row. A list is one text with commas. Settings without
// effect are skipped; switches are kept, because a switch without effect is off. A text that JSON
// cannot hold, such as a file name that is not UTF-8, is skipped, and so are rows that are recorded
// only if they were given.
CheckpointState recorded_settings(const RunConfig& config);

// Returns the current name of a flag, which a checkpoint may have stored under an old name.
std::string current_name(const std::string& flag);

// Returns recorded settings as if they had been typed.
Request recorded_request(const CheckpointState& flags);

// Returns recorded settings with the names of files as they are after a relocation.
CheckpointState relocated(CheckpointState flags, const Relocation& relocation);

// Returns `request` with the recorded value of each flag that it lacks.
Request with_recorded(Request request, const Request& recorded);

// Returns "--lr was 0.0006, it is 0.0003 now" for each flag that is in both with different values.
// Flags whose change is no change of the run, an error or described otherwise are left out.
std::vector<std::string> changed_settings(const CheckpointState& old_settings,
                                          const CheckpointState& settings);

}  // namespace llmc
