// Reports the steps of a run: progress and log with speed and MFU, skipped updates, --profile.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/comm/machines.h"
#include "llmc/comm/ranks.h"
#include "llmc/comm/step_numbers.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/device/resource_usage.h"
#include "llmc/train/run/describe_ranks.h"
#include "llmc/train/run/stop_agreement.h"
#include "llmc/train/run_position.h"
#include "llmc/train/train_step.h"
#include "llmc/train/watch/finite_check.h"
#include "llmc/train/watch/flops.h"
#include "llmc/train/watch/mfu.h"
#include "llmc/train/watch/progress.h"
#include "llmc/train/watch/rank_log.h"
#include "llmc/train/watch/slow_ranks.h"
#include "llmc/train/watch/step_profiler.h"

namespace llmc {

class Reporter {
 public:
  // `flops` is that of the model, `mfu` has the peak of a rank's device. An epoch has
  // `epoch_samples` samples. The run ends at `last_step`. Only rank 0 writes a log and profiles.
  // All ranks call this together.
  Reporter(const RunConfig& config, const FlopsPerToken& flops, MfuMeter mfu,
           std::int64_t epoch_samples, std::int64_t last_step, Exchange& exchange,
           const Ranks& ranks)
      : config_(config),
        flops_(flops),
        epoch_samples_(epoch_samples),
        mfu_(std::move(mfu)),
        exchange_(exchange),
        ranks_(ranks),
        places_(rank_places(exchange)),
        slow_ranks_(ranks.mesh()),
        progress_(exchange.first() ? config.output.log : "", config.output.resume, last_step),
        profiler_(exchange.first() ? config.output.profile : 0, config.output.profile_out) {}

  Progress& progress() { return progress_; }

  // Calls run() -> StepResult, times it, and reports the result. `position` is read after the
  // step. The ranks agree with `stop`. If the loss or the gradient is not finite, it reports the
  // cause, which diagnose(StepResult) -> NotFinite returns. Throws if the run must end then
  // (--on-nan), or if too many updates in a row were skipped.
  template <class Run, class Diagnose>
  void step(const RunPosition& position, Stream& stream, StopAgreement& stop, Run&& run,
            Diagnose&& diagnose) {
    profiler_.begin_step(stream);
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = run();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool log = !config_.output.log.empty();
    const ResourceUsage usage = log ? meter_.read() : ResourceUsage();
    StepNumbers own{
        .stop = stop.own(),
        .token_hash = result.token_hash,
        .applied = result.targets == 0 || result.optimizer.finite != 0,
        .comm_bytes = new_bytes(ranks_.bytes() + exchange_.bytes(), reported_),
        .tensor_bytes = new_bytes(ranks_.tensor_bytes(), reported_tensor_),
        .pipeline_bytes = new_bytes(ranks_.pipeline_bytes(), reported_pipeline_),
        .data_bytes = new_bytes(ranks_.bytes() - ranks_.tensor_bytes() - ranks_.pipeline_bytes(),
                                reported_data_),
        .offload_bytes = new_offload_bytes(result.offload_bytes),
        .step_ms = 1e3 * seconds,
        .phases = result.phases};
    set_usage(own, usage);
    const RankNumbers numbers(exchange_, own, ranks_.mesh());
    stop.settle(numbers.stops());
    const auto profile = profiler_.end_step(stream);
    require_equal_decisions(position.step, numbers);
    if (needs_diagnosis(result)) report_not_finite(position.step, result, diagnose(result));
    report_skipped(position.step, result);
    progress_.step(record(position, result, numbers, usage));
    report_slow_ranks(position.step, numbers);
    if (profile) progress_.note(*profile);
  }

  void end_run();

 private:
  // The number of `bytes`, which this rank has sent, since the last call with the same counter.
  static std::int64_t new_bytes(std::int64_t bytes, std::int64_t& reported) {
    return bytes - std::exchange(reported, bytes);
  }

  std::array<std::int64_t, 4> new_offload_bytes(const std::array<std::int64_t, 4>& bytes) {
    std::array<std::int64_t, 4> added{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      added[i] = new_bytes(bytes[i], reported_offload_[i]);
    }
    return added;
  }

  StepRecord record(const RunPosition& position, const StepResult& result,
                    const RankNumbers& numbers, const ResourceUsage& usage);

  // Throws on all ranks unless all applied the update, or all skipped it.
  static void require_equal_decisions(std::int64_t step, const RankNumbers& numbers);
  // Whether the step is not finite, and a smaller loss scale cannot be the cure.
  static bool needs_diagnosis(const StepResult& result);
  void report_not_finite(std::int64_t step, const StepResult& result, const NotFinite& cause);
  // " (node07)" for a transient fault of one rank.
  std::string machine_of(const NotFinite& cause) const;
  void report_skipped(std::int64_t step, const StepResult& result);
  void report_slow_ranks(std::int64_t step, const RankNumbers& numbers);

  const RunConfig& config_;
  FlopsPerToken flops_;
  std::int64_t epoch_samples_;
  MfuMeter mfu_;
  Exchange& exchange_;
  const Ranks& ranks_;
  std::vector<RankPlace> places_;
  SlowRanks slow_ranks_;
  Progress progress_;
  StepProfiler profiler_;
  ResourceMeter meter_;
  // Bytes so far.
  std::int64_t reported_ = 0, reported_tensor_ = 0, reported_pipeline_ = 0, reported_data_ = 0;
  std::array<std::int64_t, 4> reported_offload_{};
};

}  // namespace llmc
