// The checkpoints of a run: starts or resumes the run, saves, and removes old checkpoints.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/models/frozen_file.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/train/checkpoint/background_save.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "llmc/train/run/recorded_run.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run_position.h"
#include "llmc/train/watch/progress.h"

namespace llmc {

class Checkpointer {
 public:
  // All references must outlive the object. `resumed` is the run to continue, if any.
  Checkpointer(const RunConfig& config, const RunData& data, TrainingRunner& runner,
               const std::optional<RecordedRun>& resumed, Exchange& exchange)
      : config_(config), data_(data), runner_(runner), resumed_(resumed), exchange_(exchange) {
    open_frozen_file();
  }

  // Sets `position` to the checkpoint of the resumed run or to step 0, loads that checkpoint into
  // the runner and removes later steps from the log. Returns one note per setting that differs from
  // the checkpoint.
  std::vector<std::string> restore_or_start(RunPosition& position);

  // Notes a loss of the weights after `step` steps. When it is the first one that is not finite,
  // the newest checkpoint from before is protected from removal for the rest of the run.
  void observe_loss(RunPosition& position, double loss, std::int64_t step);

  // Saves the state at `position`, or begins to save it with --save async. Does nothing without
  // --out, at step 0, or if this step is already saved. `loss` is the loss of the last step, for
  // the model card. `only_best`: only because of its validation loss; the checkpoint is removed
  // when another has a lower one. Waits for a save that is still being written. Throws on rank 0,
  // or with
  // --save async on all ranks, here or in one of the next two functions, if weights or moments are
  // not finite.
  void save(const RunPosition& position, std::optional<double> loss, Progress& progress,
            bool only_best = false);

  // Completes a save whose files are written. All ranks call this at each boundary of steps.
  void complete_written(Progress& progress);
  // Waits until no save is being written.
  void complete(Progress& progress);

  bool is_saving() const { return pending_.has_value(); }

  // Whether --checkpoint-minutes have passed since the last save. All ranks call this together.
  bool is_save_overdue();

  // Whether --keep-best demands a checkpoint of this step.
  bool is_new_best(const RunPosition& position) const {
    return config_.output.keep_best && position.best && position.best->step == position.step;
  }

  // The step and the path of the newest checkpoint of the run; -1 and empty if it has none.
  std::int64_t saved_step() const { return saved_step_; }
  const std::string& saved_path() const { return saved_path_; }

  // Reports whether the state is saved, for a run that a signal ended at this step.
  std::string interruption_text(std::int64_t step) const;

 private:
  bool has_adapter() const { return config_.adapter.shape.kind != AdapterKind::none; }

  bool saves_in_background() const { return config_.output.save == SaveMode::async; }

  // Opens the file of frozen parameters if the state keeps them only rounded.
  void open_frozen_file();

  // The position of this run at step 0.
  RunPosition initial_position() const;

  std::vector<std::string> restore(RunPosition& position);

  std::string path_of(const std::string& checkpoint) const;

  // The newest checkpoint from before the loss of the weights after `step` steps, which is not
  // finite. Empty if there is none, and on other ranks than 0.
  std::string checkpoint_before(std::int64_t step) const;

  // Throws that the state at `position` cannot be saved.
  [[noreturn]] void refuse_save(const RunPosition& position, const ElementError& error);

  // The parts of a checkpoint at `position` that are not the state.
  CheckpointOptions options_for(const RunPosition& position, const HuggingFaceConfig& model,
                                std::optional<double> loss, bool only_best) const;

  // A save at `position` is complete.
  void note_saved(const RunPosition& position, const SaveTimes& times, Progress& progress);

  // Removes checkpoints that the settings do not keep, and sets the links to the newest and the
  // best one.
  void tidy(const RunPosition& position, Progress& progress);
  void remove_and_link(const RunPosition& position, Progress& progress);

  HuggingFaceConfig huggingface_config() const;

  const RunConfig& config_;
  const RunData& data_;
  TrainingRunner& runner_;
  const std::optional<RecordedRun>& resumed_;
  Exchange& exchange_;
  std::optional<FrozenFile> frozen_file_;
  std::optional<BackgroundSave> pending_;
  RunPosition pending_position_;  // of that save, with the best loss so far
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  std::string saved_path_;  // path of the newest checkpoint
  std::int64_t saved_step_ = -1;
};

}  // namespace llmc
