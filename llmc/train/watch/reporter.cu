#include <cmath>
#include <iterator>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/config/choices.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/train/watch/reporter.h"

namespace llmc {

void Reporter::end_run() {
  if (const auto profile = profiler_.end_run()) progress_.note(*profile);
  Notice::end_live_line();
}

StepRecord Reporter::record(const RunPosition& position, const StepResult& result,
                            const RankNumbers& numbers, const ResourceUsage& usage) {
  const double step_ms = numbers.mean([](const StepNumbers& rank) { return rank.step_ms; });
  const double tok_per_s = 1e3 * static_cast<double>(result.tokens) / step_ms;
  const double rank_tok_per_s = tok_per_s / static_cast<double>(exchange_.ranks());
  const std::string note = mfu_.add_step(rank_tok_per_s * flops_.causal);
  if (!note.empty()) mfu_.peak().is_measured ? progress_.note(note) : Notice::warn(note);
  return {.step = position.step,
          .loss = result.loss,
          .grad_norm = static_cast<double>(result.optimizer.gradient_norm),
          .lr = result.learning_rate,
          .tokens = position.tokens,
          .epoch = static_cast<double>(position.samples) / static_cast<double>(epoch_samples_),
          .tok_per_s = tok_per_s,
          .mfu = mfu_.fraction(rank_tok_per_s * flops_.causal),
          .mfu_full = mfu_.fraction(rank_tok_per_s * flops_.full),
          .step_ms = step_ms,
          .loss_scale = static_cast<double>(result.optimizer.step_loss_scale),
          .qat = config_.quantized_pass(position.step).weights ? choice_name(config_.qat.mode) : "",
          .more = rank_log(numbers, usage, config_.output.log_ranks)};
}

void Reporter::require_equal_decisions(std::int64_t step, const RankNumbers& numbers) {
  std::vector<int> applied, skipped;
  for (int rank = 0; rank < std::ssize(numbers.ranks()); ++rank) {
    const bool is_applied = numbers.ranks()[static_cast<std::size_t>(rank)].applied != 0;
    (is_applied ? applied : skipped).push_back(rank);
  }
  if (applied.empty() || skipped.empty()) return;
  fail_together("step " + std::to_string(step) + ": " + rank_list(skipped) +
                    " skipped the update as not finite, " + rank_list(applied) + " applied it",
                "the ranks compute this from equal numbers: one of them, or its link, is broken; "
                "resume from the last checkpoint without its machine");
}

bool Reporter::needs_diagnosis(const StepResult& result) {
  const OptimizerState& optimizer = result.optimizer;
  if (result.targets == 0 || optimizer.finite != 0) return false;
  return optimizer.overflowed == 0 || optimizer.step_loss_scale <= kMinLossScale;
}

void Reporter::report_not_finite(std::int64_t step, const StepResult& result,
                                 const NotFinite& cause) {
  const float norm = result.optimizer.gradient_norm;
  const bool is_loss = !std::isfinite(result.loss);
  const double value = is_loss ? result.loss : norm;
  const std::string text = not_finite_text(step,
                                           std::string(is_loss ? "the loss" : "the gradient norm") +
                                               (std::isnan(value) ? " is nan" : " is inf"),
                                           cause) +
                           machine_of(cause);
  const LogRecord record = {{"step", step}, {"not_finite", text}};
  if (config_.output.on_nan == OnNan::skip) return progress_.record(record, text);
  progress_.log(record);
  const bool saves = !config_.output.out.empty();
  const std::string resume = saves ? "resume from the last checkpoint " : "start again ";
  fail_together(text, cause.is_transient
                          ? resume +
                                "without this machine if the fault comes again; --on-nan skip "
                                "skips such a step"
                          : resume +
                                "with a lower --lr, a longer --warmup or --dtype fp32; --on-nan "
                                "skip skips such a step");
}

std::string Reporter::machine_of(const NotFinite& cause) const {
  if (!cause.is_transient || cause.ranks.size() > 1) return "";
  return " (" + place_text(places_[static_cast<std::size_t>(cause.ranks[0])]) + ")";
}

void Reporter::report_skipped(std::int64_t step, const StepResult& result) {
  const OptimizerState& optimizer = result.optimizer;
  if (result.targets == 0) {
    Notice::warn("step " + std::to_string(step) + ": no token has a target, update skipped");
    return;
  }
  if (optimizer.finite != 0) return;
  Notice::warn(skipped_update_text(step, result.loss, optimizer));
  if (optimizer.consecutive_skips < config_.output.max_skipped) return;
  fail_together(std::to_string(optimizer.consecutive_skips) +
                    " updates in a row were skipped: the loss or the gradient is not finite",
                "lower --lr, raise --warmup or use --dtype fp32; --max-skipped sets how many are "
                "tolerated");
}

void Reporter::report_slow_ranks(std::int64_t step, const RankNumbers& numbers) {
  if (!exchange_.first() || exchange_.ranks() == 1) return;
  std::vector<RankTimes> times;
  for (const StepNumbers& rank : numbers.ranks()) times.push_back(rank_times(rank.phases));
  for (const SlowRank& slow : slow_ranks_.add_step(times)) {
    const RankPlace& place = places_[static_cast<std::size_t>(slow.rank)];
    progress_.record({{"step", step},
                      {"slow_rank", std::int64_t{slow.rank}},
                      {"host", place.host},
                      {"device", place.device},
                      {"gpu", place.gpu},
                      {"own_ms", slow.own},
                      {"median_ms", slow.median}},
                     slow_rank_text(slow, place));
  }
}

}  // namespace llmc
