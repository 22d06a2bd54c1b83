#include "llmc/config/train_table.h"

#include <string>

#include "llmc/config/fill_settings.h"

namespace llmc {

const Settings<TrainProgram>& TrainProgram::settings() {
  static const Settings<TrainProgram> table = [] {
    Settings<TrainProgram> all;
    add_group(all, "Data", data_rows());
    add_group(all, "Data", text_rows());
    add_group(all, "Model", model_rows());
    add_group(all, "Task", task_rows());
    add_group(all, "Batch", batch_rows());
    const std::string ranks =
        "Ranks and parallelism (scripts/run.sh -np N ./train_gpt2 ... starts N)";
    add_group(all, ranks, rank_rows());
    add_group(all, ranks, pipeline_rows());
    add_group(all, ranks, zero_rows());
    add_group(all, ranks, plan_rows());
    add_group(all, "Memory (less of it, for more work)", memory_rows());
    add_group(all, "Fine-tuning", finetune_rows());
    add_group(all, "Steps and learning rate", schedule_rows());
    add_group(all, "Optimizer (AdamW)", optimizer_rows());
    add_group(all, "Dropout", dropout_rows());
    add_group(all, "Device and precision", precision_rows());
    add_group(all, "Quantization-aware training", qat_rows());
    add_group(all, "Evaluation tasks (results to stdout and --log)", evaluation_rows());
    add_group(all, "Validation and samples", sample_rows());
    add_group(all, "Checkpoints", checkpoint_rows());
    add_group(all, "Output", output_rows());
    return all;
  }();
  return table;
}

RunConfig default_run_config() {
  return fill_settings<TrainProgram>(train_settings(), {}, {});
}

}  // namespace llmc
