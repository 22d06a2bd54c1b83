// Reports the steps of a run: progress and log with speed and MFU, skipped updates, --profile.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/config/train_settings.h"
#include "llmc/train/train_step.h"
#include "llmc/train/watch/profiling.h"
#include "llmc/train/watch/progress.h"
#include "llmc/train/watch/speed.h"

namespace llmc {

class Reporter {
 public:
  // `flops` is that of the model, `peak` that of the device. The run ends at `last_step`.
  Reporter(const RunConfig& config, const FlopsPerToken& flops, const Peak& peak,
           std::int64_t last_step)
      : config_(config),
        flops_(flops),
        peak_(peak),
        progress_(config.output.log, config.output.resume, last_step),
        profiler_(config.output.profile, config.output.profile_out) {}

  Progress& progress() { return progress_; }

  // Calls run() -> StepResult, times it, and reports the result. `position` is read after the
  // step. Throws if too many updates in a row were skipped.
  template <class Run>
  void step(const RunPosition& position, Stream& stream, Run&& run) {
    profiler_.begin_step(stream);
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = run();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_skipped(position.step, result);
    progress_.step(record(position, result, seconds));
    if (const auto profile = profiler_.end_step(stream)) progress_.note(*profile);
  }

  void end_run() {
    if (const auto profile = profiler_.end_run()) progress_.note(*profile);
    Notice::end_live_line();
  }

 private:
  StepRecord record(const RunPosition& position, const StepResult& result, double seconds) const {
    const double tok_per_s = static_cast<double>(config_.tokens_per_step()) / seconds;
    return {.step = position.step,
            .loss = result.loss,
            .grad_norm = static_cast<double>(result.optimizer.gradient_norm),
            .lr = result.learning_rate,
            .tokens = position.tokens,
            .tok_per_s = tok_per_s,
            .mfu = tok_per_s * flops_.causal / peak_.flops,
            .mfu_full = tok_per_s * flops_.full / peak_.flops,
            .step_ms = 1e3 * seconds,
            .loss_scale = static_cast<double>(result.optimizer.step_loss_scale)};
  }

  void report_skipped(std::int64_t step, const StepResult& result) {
    const OptimizerState& optimizer = result.optimizer;
    if (optimizer.finite != 0) return;
    Notice::warn(skipped_update_text(step, result.loss, optimizer));
    if (optimizer.consecutive_skips < config_.output.max_skipped) return;
    fail(std::to_string(optimizer.consecutive_skips) +
             " updates in a row were skipped: the loss or the gradient is not finite",
         "lower --lr, raise --warmup or use --dtype fp32; --max-skipped sets how many are "
         "tolerated");
  }

  const RunConfig& config_;
  FlopsPerToken flops_;
  Peak peak_;
  Progress progress_;
  StepProfiler profiler_;
};

}  // namespace llmc
