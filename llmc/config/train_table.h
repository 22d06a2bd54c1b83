// The table of all settings of train_gpt2, in the order of --help. A rule sees only the rows above
// its own. To add a flag, add a member and a row to its group, and use the member.
#pragma once

#include "llmc/config/setting.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_settings.h"

namespace llmc {

inline const Settings<TrainProgram>& train_settings() {
  return TrainProgram::settings();
}

// The defaults of a run from scratch, for tests and tools that build only a part of a run.
RunConfig default_run_config();

}  // namespace llmc
