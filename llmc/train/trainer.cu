#include <algorithm>
#include <exception>
#include <initializer_list>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/base/resolved.h"
#include "llmc/base/standard_output.h"
#include "llmc/comm/ranks.h"
#include "llmc/config/exit_code.h"
#include "llmc/config/quantities.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/pipeline/timeline.h"
#include "llmc/plan/memory_hint.h"
#include "llmc/plan/schedule_dump.h"
#include "llmc/train/checkpoint/shared_disk.h"
#include "llmc/train/rule.h"
#include "llmc/train/run/check_links.h"
#include "llmc/train/run/initial_state.h"
#include "llmc/train/run/interruption_text.h"
#include "llmc/train/run/run_output.h"
#include "llmc/train/trainer.h"
#include "llmc/train/watch/flops.h"
#include "llmc/train/watch/replica_check.h"
#include "llmc/train/watch/run_record.h"
#include "llmc/train/watch/work_plan.h"

namespace llmc {

Trainer::Trainer(const RunConfig& config, RunData data, std::optional<RecordedRun> resumed,
                 World& world, Exchange& exchange, Control& control)
    : config_(config),
      data_(std::move(data)),
      resumed_(std::move(resumed)),
      exchange_(exchange),
      control_(control),
      stop_(exchange, config.output.stop_after_minutes),
      runner_(make_training_runner(config.precision.dtype, config.shape, config.run_shape(),
                                   training_gemm_options(config.precision.tf32),
                                   Ranks(world, config.mesh()))),
      evaluator_(config_, data_, runner_->evaluation(), exchange, stop_),
      checkpointer_(config_, data_, *runner_, resumed_, exchange) {
  // Measured before allocate(), because measuring needs memory that the model uses afterwards.
  if (config.ranks.check_links) measure_links(world);
  if (config.training()) measure_peak();
  planned_memory_ = allocate(*runner_, config.batch.grad_accum, exchange);
  set_initial_state(*runner_, config_, resumed_.has_value(), exchange);
}

void Trainer::train() {
  Interruption interruption(!config_.output.out.empty());
  LogLock log_lock(exchange_.first() ? config_.output.log : "");
  const FileDescriptor lock =
      exchange_.first() ? check_run_output(config_.output, config_.samples) : FileDescriptor();
  RunStatus status(config_.output.out, progress_of_run());
  const std::string text = exchange_.first() ? status.begin() : "";
  // The others wait here until rank 0 has found its output in order.
  status.join(exchange_.broadcast(text));
  const Control::Run watched(
      control_, config_.output.out,
      [&](int exit_code, const std::string& reason) { status.fail(exit_code, reason); });
  try {
    train_locked(log_lock, interruption, status);
  } catch (const std::exception& error) {
    const bool is_common = dynamic_cast<const ErrorOfAllRanks*>(&error) != nullptr;
    const std::string rank = is_common || exchange_.ranks() == 1
                                 ? ""
                                 : "rank " + std::to_string(exchange_.rank()) + ": ";
    status.fail(exit_code_of(error), rank + error_text(error, train_settings()));
    throw;
  }
}

void Trainer::train_locked(LogLock& log_lock, Interruption& interruption, RunStatus& status) {
  if (!config_.output.out.empty() && config_.output.save == SaveMode::async) {
    require_shared_disk(config_.output.out, exchange_);
  }
  const std::vector<std::string> changes = checkpointer_.restore_or_start(position_);
  log_lock.renew();
  runner_->context().quantization.set(config_.quantized_pass(position_.step));
  summary_.start = std::chrono::steady_clock::now();
  summary_.first_step = position_.step;
  summary_.first_tokens = position_.tokens;
  Interruption::set_saved(checkpointer_.saved_step());
  Interruption::set_activity(RunActivity::between, position_.step);
  SignalRequest::set_work("before step " + std::to_string(position_.step + 1));
  const std::int64_t last = last_step();
  Notice::print(mfu_text(peak_, exchange_.ranks()));
  Reporter reporter(config_,
                    flops_per_token(runner_->table(), config_.shape, config_.batch.seq_len),
                    mfu_meter(), data_.train->count(), last, exchange_, runner_->context().ranks);
  Progress& progress = reporter.progress();
  progress.log(run_record(position_, data_, resumed_, planned_memory_));
  if (links_) progress.log(link_record(position_.step, *links_));
  for (const std::string& change : changes) {
    progress.record({{"step", position_.step}, {"resumed", change}}, "resume: " + change);
  }
  run_steps(reporter, last, interruption, status);
  if (stop_.requested()) save(progress);
  complete_saves(progress);
  status.set_progress(progress_of_run());
  throw_log_failure(progress);
  reporter.end_run();
  if (!config_.samples.final_out.empty()) evaluator_.write_samples(position_.step);
  if (!stop_.requested()) run_test(progress);
  if (!stop_.requested()) print_results(evaluator_.run_tasks(position_.step, progress));
  const bool is_complete = !stop_.requested();
  if (!is_complete) report_interruption();
  agree(progress);
  throw_log_failure(progress);
  print_summary();
  end_status(status, is_complete);
}

RunProgress Trainer::progress_of_run() const {
  RunProgress progress{.step = position_.step,
                       .steps = config_.schedule.steps,
                       .checkpoint = checkpointer_.saved_path()};
  if (progress.checkpoint.empty() && resumed_) {  // nothing is restored yet
    progress.step = resumed_->step;
    progress.checkpoint = resumed_->checkpoint.string();
  }
  return progress;
}

void Trainer::end_status(RunStatus& status, bool is_complete) const {
  if (!exchange_.first()) return;
  status.set_progress(progress_of_run());
  if (!is_complete) return status.stop(stop_.reason());
  if (position_.step >= config_.schedule.steps) return status.finish();
  status.stop("--stop-after " + std::to_string(config_.output.stop_after));
}

void Trainer::evaluate_only() {
  Interruption interruption(false, false);
  interruption.begin();
  stop_.begin_time_limit();
  const std::string& log = exchange_.first() ? config_.output.log : "";
  const LogLock log_lock(log);
  if (!log.empty()) refuse_used_log(log);
  runner_->context().quantization.set(config_.quantized_pass(0));
  Progress progress(log, false, 0);
  if (links_) progress.log(link_record(0, *links_));
  if (data_.validation) {
    const Evaluation result = evaluator_.evaluate(*data_.validation, 0, 0);
    require_uninterrupted();
    progress.log(evaluation_record("val", 0, result, data_.label_names));
    print_evaluation("val", result);
  }
  run_test(progress);
  require_uninterrupted();
  const std::vector<EvalResult> results = evaluator_.run_tasks(0, progress);
  print_results(results);
  progress.throw_failure();
  require_uninterrupted();
}

void Trainer::measure_peak() {
  peak_ = known_peak(config_.device.peak_tflops, device_properties(), config_.precision.dtype,
                     config_.precision.tf32);
  if (exchange_.first() && peak_.is_measured) {
    peak_.flops = runner_->measured_peak_flops();
  }
  peak_.flops = exchange_.broadcast(peak_.flops);
}

void Trainer::measure_links(World& world) {
  links_ = check_links(world, exchange_, [this] { return runner_->measured_peak_flops(); });
  Notice::print(link_report_text(*links_));
}

MfuMeter Trainer::mfu_meter() {
  if (!kPeakFitsNextToModel) return MfuMeter(peak_, {});
  return MfuMeter(peak_, [this] {
    measure_peak();
    return peak_.flops;
  });
}

bool Trainer::agree(const Progress& progress) {
  if (progress.failed()) stop_.report_failure();
  return stop_.agree();
}

void Trainer::throw_log_failure(const Progress& progress) const {
  if (!stop_.failed()) return;
  progress.throw_failure();
  fail_together("rank 0 cannot write its log");  // rank 0 reports its reason
}

void Trainer::run_steps(Reporter& reporter, std::int64_t last, Interruption& interruption,
                        RunStatus& status) {
  Progress& progress = reporter.progress();
  const OutputSettings<Resolved>& output = config_.output;
  // The rules, in the order in which they run after a step.
  const Rule validation = {
      WorkKind::validation, {config_.validation.every}, Rule::OnLastStep::if_enabled, [&] {
        evaluator_.validate(position_, progress);
        observe_validation();
        if (checkpointer_.is_new_best(position_)) save_best(progress, last);
      }};
  const Rule sample = {
      WorkKind::sample, {config_.samples.every}, Rule::OnLastStep::if_enabled, [&] {
        evaluator_.show_sample(position_.step, progress);
      }};
  const Rule checkpoint = {WorkKind::save,
                           {output.checkpoint_every, output.milestone_every},
                           Rule::OnLastStep::always,
                           [&] { save(progress); },
                           [&] { return checkpointer_.is_save_overdue(); }};
  // train() runs the tasks after the last step and prints their results.
  const Rule tasks = {WorkKind::tasks, {config_.evaluation.every}, Rule::OnLastStep::never, [&] {
                        evaluator_.run_tasks(position_.step, progress);
                      }};
  const std::initializer_list<const Rule*> rules = {&validation, &sample, &checkpoint, &tasks};
  Eta& eta = progress.eta();
  if (validation.due(position_.step, last)) timed(eta, WorkKind::validation, validation.act);
  set_work_guesses(eta, config_, data_, runner_->table().count());
  eta.add_left(WorkKind::step, last - position_.step);
  for (const Rule* rule : rules) {
    eta.add_left(rule->work, rule->times_due(position_.step, last));
  }
  if (!data_.tasks.empty()) eta.add_left(WorkKind::tasks, 1);
  if (!config_.samples.final_out.empty()) eta.add_left(WorkKind::final_samples, 1);
  data_.train->begin(config_.global_batch(), position_.samples);
  TrainStep step(config_, *runner_, exchange_,
                 {[&](std::int64_t first, std::int64_t B) { return data_.train->batch(first, B); },
                  data_.train->masks_targets()});
  step.read_ahead(position_);
  const bool dumps_schedule = !config_.ranks.dump_schedule.empty();
  if (dumps_schedule) step.time_passes();
  const std::int64_t first = position_.step;
  interruption.begin();
  while (position_.step < last && !agree(progress)) {
    run_step(reporter, step);
    checkpointer_.complete_written(progress);
    Interruption::set_saved(checkpointer_.saved_step());
    status.set_progress(progress_of_run());
    for (const Rule* rule : rules) {
      if (stop_.requested()) break;
      if (!rule->due(position_.step, last) && !(rule->also_due && rule->also_due())) continue;
      timed(eta, rule->work, rule->act);
      status.set_progress(progress_of_run());
      agree(progress);
    }
  }
  if (stop_.requested() && position_.step == first && first < last) end_before_first_step();
  if (dumps_schedule && position_.step > first) dump_measured(step);
}

void Trainer::dump_measured(TrainStep& step) {
  const std::vector<TimedPass> passes = step.timed_passes();
  if (passes.empty()) return;  // no step had a target
  const PipelineTimeline timeline =
      gather_timeline(passes, config_.pipeline, config_.mesh(), exchange_);
  if (exchange_.first()) dump_schedule(config_, MeasuredTimeline{position_.step, timeline});
}

void Trainer::run_step(Reporter& reporter, TrainStep& step) {
  Interruption::set_activity(RunActivity::step, position_.step + 1);
  bool has_targets = false;
  summary_.step_seconds += timed(reporter.progress().eta(), WorkKind::step, [&] {
    const auto diagnose = [&](const StepResult& result) {
      return step.diagnose(position_, result);
    };
    const auto run = [&] {
      const StepResult result = step.run(position_);
      stop_.begin_time_limit();
      loss_ = result.loss;  // for the model card, even if the log cannot be written
      has_targets = result.targets > 0;
      position_.history.back().add_step(result.tokens, result.learning_rate);
      return result;
    };
    reporter.step(position_, runner_->stream(), stop_, run, diagnose);
  });
  // The loss of a step is that of the weights before its update.
  if (has_targets) checkpointer_.observe_loss(position_, *loss_, position_.step - 1);
  const std::int64_t verify_every = config_.ranks.verify_every;
  if (exchange_.ranks() > 1 && verify_every > 0 && position_.step % verify_every == 0) {
    check_replicas(runner_->state(), position_.step, *loss_, exchange_, runner_->stream());
  }
  Interruption::set_activity(RunActivity::between, position_.step);
}

void Trainer::observe_validation() {
  if (!position_.validation || position_.validation->step != position_.step) return;
  checkpointer_.observe_loss(position_, position_.validation->loss, position_.step);
}

std::int64_t Trainer::last_step() const {
  const std::int64_t steps = config_.schedule.steps, stop_after = config_.output.stop_after;
  return stop_after > 0 ? std::min(steps, position_.step + stop_after) : steps;
}

void Trainer::save(Progress& progress, bool only_best) {
  if (!config_.output.out.empty() && position_.step > 0) {
    Interruption::set_activity(RunActivity::saving, position_.step);
  }
  checkpointer_.save(position_, loss_, progress, only_best);
  Interruption::set_saved(checkpointer_.saved_step());
  Interruption::set_activity(RunActivity::between, position_.step);
}

void Trainer::complete_saves(Progress& progress) {
  if (!checkpointer_.is_saving()) return;
  Interruption::set_activity(RunActivity::saving, position_.step);
  checkpointer_.complete(progress);
  Interruption::set_saved(checkpointer_.saved_step());
  Interruption::set_activity(RunActivity::between, position_.step);
}

void Trainer::save_best(Progress& progress, std::int64_t last) {
  const OutputSettings<Resolved>& output = config_.output;
  const Rule regular = {WorkKind::save,
                        {output.checkpoint_every, output.milestone_every},
                        Rule::OnLastStep::always,
                        {}};
  save(progress, !regular.due(position_.step, last));
}

void Trainer::print_results(const std::vector<EvalResult>& results) {
  if (results.empty()) return;
  print_text(eval_table(results));
}

void Trainer::run_test(Progress& progress) {
  const std::optional<Evaluation> result = evaluator_.test(position_.step, progress);
  if (result) print_evaluation("test", *result);
}

void Trainer::print_evaluation(const std::string& name, const Evaluation& result) const {
  std::string text = name + number_text("_loss %.6f\n", result.loss());
  if (result.confusion) {
    text += classification_table(classification_metrics(*result.confusion), data_.label_names) +
            confusion_table(*result.confusion, data_.label_names);
  }
  print_text(text);
}

void Trainer::report_interruption() const {
  Notice::print("interrupted by " + stop_.reason() + " after step " +
                std::to_string(position_.step) + ": " +
                checkpointer_.interruption_text(position_.step));
}

void Trainer::require_uninterrupted() const {
  if (!stop_.requested()) return;
  fail_together("interrupted by " + stop_.reason() + ": the evaluation is not complete");
}

void Trainer::print_summary() {
  summary_.step = position_.step;
  summary_.last_step = config_.schedule.steps;
  summary_.tokens = position_.tokens - summary_.first_tokens;
  summary_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - summary_.start).count();
  summary_.validation = position_.validation;
  summary_.best = position_.best;
  summary_.saved = checkpointer_.saved_path();
  Notice::print(summary_text(summary_));
  Notice::print("try: " + next_command(config_, position_.step, *data_.tokenizer));
}

}  // namespace llmc
