// The table of all settings of train_gpt2, in the order of --help. A rule sees only the rows above
// its own. To add a flag, add a member and a row to its group, and use the member.
#pragma once

#include <string>

#include "llmc/config/fill_settings.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_settings.h"

namespace llmc {

inline const Settings<TrainProgram>& TrainProgram::settings() {
  static const Settings<TrainProgram> table = [] {
    Settings<TrainProgram> all;
    add_group(all, "Data", data_rows<TrainProgram>());
    add_group(all, "Model", model_rows<TrainProgram>());
    add_group(all, "Batch", batch_rows<TrainProgram>());
    const std::string ranks = "Ranks (mpirun -np N ./train_gpt2)";
    add_group(all, ranks, rank_rows<TrainProgram>());
    add_group(all, ranks, pipeline_rows<TrainProgram>());
    add_group(all, ranks, zero_rows<TrainProgram>());
    add_group(all, ranks, plan_rows<TrainProgram>());
    add_group(all, "Steps and learning rate", schedule_rows<TrainProgram>());
    add_group(all, "Optimizer (AdamW)", optimizer_rows<TrainProgram>());
    add_group(all, "Dropout", dropout_rows<TrainProgram>());
    add_group(all, "Device and precision", precision_rows<TrainProgram>());
    add_group(all, "Quantization-aware training", qat_rows<TrainProgram>());
    add_group(all, "Evaluation tasks (results to stdout and --log)",
              evaluation_rows<TrainProgram>());
    add_group(all, "Validation and samples", sample_rows<TrainProgram>());
    add_group(all, "Checkpoints", checkpoint_rows<TrainProgram>());
    add_group(all, "Output", output_rows<TrainProgram>());
    return all;
  }();
  return table;
}

inline const Settings<TrainProgram>& train_settings() {
  return TrainProgram::settings();
}

// The defaults of a run from scratch, for tests and tools that build only a part of a run.
inline RunConfig default_run_config() {
  return fill_settings<TrainProgram>(train_settings(), {}, {});
}

}  // namespace llmc
