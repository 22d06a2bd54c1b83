// A training run: a model, its data, and the loop of steps with the actions due between them.
//
// With several ranks, each has a Trainer and makes the same calls in the same order. Whatever
// decides about them is equal on all ranks, or agreed on (StopAgreement). Rank 0 writes the files.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/signal_request.h"
#include "llmc/comm/exchange.h"
#include "llmc/comm/world.h"
#include "llmc/config/train_settings.h"
#include "llmc/control/control.h"
#include "llmc/device/device.h"
#include "llmc/eval/report.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/train/checkpoint/checkpointer.h"
#include "llmc/train/evaluator.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/link_report.h"
#include "llmc/train/run/log_lock.h"
#include "llmc/train/run/recorded_run.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/run_status.h"
#include "llmc/train/run/stop_agreement.h"
#include "llmc/train/run_position.h"
#include "llmc/train/train_step.h"
#include "llmc/train/watch/eta.h"
#include "llmc/train/watch/mfu.h"
#include "llmc/train/watch/progress.h"
#include "llmc/train/watch/reporter.h"
#include "llmc/train/watch/summary.h"

namespace llmc {

class Trainer {
 public:
  // Allocates and fills the device memory of the run; throws with a hint if it does not fit.
  // `resumed`: the run that --resume continues, if there is one. The world, the exchange and the
  // control must outlive the object.
  Trainer(const RunConfig& config, RunData data, std::optional<RecordedRun> resumed, World& world,
          Exchange& exchange, Control& control);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains to the last step of the run, to --stop-after or --stop-after-minutes, or until a stop
  // signal. After a signal it finishes the current step and saves; before the first step, a signal
  // ends the process. Rank 0 writes the status of the run into --out.
  void train();

  // Computes the validation loss of all windows and runs the tasks of --eval, without training.
  void evaluate_only();

 private:
  // Trains in an --out that is locked.
  void train_locked(LogLock& log_lock, Interruption& interruption, RunStatus& status);

  RunProgress progress_of_run() const;

  // Rank 0 writes the end of the run. `is_complete`: nothing ended it early.
  void end_status(RunStatus& status, bool is_complete) const;

  // Rank 0 measures while the others wait: they would share its processors or its GPU.
  void measure_peak();

  MfuMeter mfu_meter();

  // Measures devices and links, and prints them.
  void measure_links(World& world);

  // All ranks call this together. Returns whether the run ends early.
  bool agree(const Progress& progress);

  // Throws if the log could not be written, on every rank.
  void throw_log_failure(const Progress& progress) const;

  // Runs steps up to `last`, or until a signal arrives. `interruption` begins before the first
  // step.
  void run_steps(Reporter& reporter, std::int64_t last, Interruption& interruption,
                 RunStatus& status);

  // Ends the process by the signal that has arrived. Returns if the run ends for another reason.
  void end_before_first_step() const {
    if (Interruption::requested()) SignalRequest::end_process(Interruption::signal());
  }

  // Writes the timeline of the last step.
  void dump_measured(TrainStep& step);

  void run_step(Reporter& reporter, TrainStep& step);

  // Notes the validation loss of this step, unless it was interrupted.
  void observe_validation();

  // Calls `action` and returns its seconds. An interrupted one does not count as a measurement.
  template <class Action>
  double timed(Eta& eta, WorkKind work, const Action& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (work == WorkKind::step || !stop_.requested()) eta.finished(work, seconds);
    return seconds;
  }

  std::int64_t last_step() const;

  void save(Progress& progress, bool only_best = false);

  // Waits until all checkpoints are written.
  void complete_saves(Progress& progress);

  // Saves a checkpoint because of its validation loss. If a checkpoint is due anyway, it is not
  // removed when another has a lower loss.
  void save_best(Progress& progress, std::int64_t last);

  // Evaluates the samples of --test, if there are any, and prints the result to stdout.
  void run_test(Progress& progress);

  void print_evaluation(const std::string& name, const Evaluation& result) const;

  static void print_results(const std::vector<EvalResult>& results);

  void report_interruption() const;

  // An interrupted evaluation has no result.
  void require_uninterrupted() const;

  void print_summary();

  RunConfig config_;
  RunData data_;
  std::optional<RecordedRun> resumed_;
  Exchange& exchange_;
  Control& control_;
  StopAgreement stop_;
  std::unique_ptr<TrainingRunner> runner_;
  std::optional<LinkReport> links_;           // --check-links
  std::vector<std::int64_t> planned_memory_;  // bytes of each rank
  Evaluator evaluator_;
  Checkpointer checkpointer_;
  RunPosition position_;
  std::optional<double> loss_;  // of the last step
  Peak peak_;
  RunSummary summary_;
};

}  // namespace llmc
