#include "llmc/train/watch/progress.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include "llmc/base/number_text.h"
#include "llmc/base/terminal.h"

namespace llmc {

std::string skipped_update_text(std::int64_t step, double loss, const OptimizerState& optimizer) {
  std::string text = "step " + std::to_string(step) + number_text(": loss %f", loss) +
                     number_text(", gradient norm %f", optimizer.gradient_norm) +
                     ": not finite, update skipped (" + std::to_string(optimizer.skipped_updates) +
                     " in total)";
  if (optimizer.loss_scale != optimizer.step_loss_scale) {
    text += ", loss scale " + std::to_string(std::lround(optimizer.step_loss_scale)) + " -> " +
            std::to_string(std::lround(optimizer.loss_scale));
  }
  return text;
}

void Progress::step(const StepRecord& r) {
  if (log_) {
    LogRecord line{
        {"step", r.step},         {"loss", r.loss},      {"grad_norm", r.grad_norm}, {"lr", r.lr},
        {"tokens", r.tokens},     {"epoch", r.epoch},    {"tok_per_s", r.tok_per_s}, {"mfu", r.mfu},
        {"mfu_full", r.mfu_full}, {"step_ms", r.step_ms}};
    if (r.loss_scale > 0) line.emplace_back("loss_scale", r.loss_scale);
    if (!r.qat.empty()) line.emplace_back("qat", r.qat);
    line.insert(line.end(), r.more.begin(), r.more.end());
    log(line);
  }
  if (first_step_ == 0) first_step_ = r.step;
  const bool first_or_last = r.step == first_step_ || r.step == last_step_;
  if (first_or_last || seconds_since_shown() > (terminal_ ? 0.2 : 5.0)) show(r);
}

void Progress::validation(std::int64_t step, double loss) {
  log({{"step", step}, {"val_loss", loss}});
  note("step " + std::to_string(step) + number_text(": validation loss %.4f", loss));
}

void Progress::log(const LogRecord& line) {
  if (!log_ || failure_) return;
  try {
    log_->write(line);
  } catch (const LogError&) {
    failure_ = std::current_exception();
  }
}

void Progress::record(const LogRecord& line, const std::string& text) {
  log(line);
  note(text);
}

void Progress::show(const StepRecord& r) {
  last_shown_ = Clock::now();
  const std::optional<double> remaining = eta_.seconds_left();
  // Drop priority: on a narrow terminal the part with the highest number is dropped first; 0 is
  // never dropped.
  const Part parts[] = {{9, bar(r.step)},
                        {0, "step " + std::to_string(r.step) + "/" + std::to_string(last_step_)},
                        {0, number_text(" | loss %.4f", r.loss)},
                        {6, number_text(" | grad norm %.3f", r.grad_norm)},
                        {5, number_text(" | lr %.2e", r.lr)},
                        {8, number_text(" | %.0f ms", r.step_ms)},
                        {4, number_text(" | %.0f tok/s", r.tok_per_s)},
                        {7, mfu_part(r)},
                        {3, remaining ? " | ETA " + duration_text(*remaining) : ""}};
  if (!terminal_) return note(join_parts(parts, 8));
  const std::size_t width = live_line_width();
  int max_priority = 9;
  while (max_priority > 0 && join_parts(parts, max_priority).size() > width) --max_priority;
  Notice::show_live(join_parts(parts, max_priority));
}

std::string Progress::mfu_part(const StepRecord& r) {
  if (std::isnan(r.mfu)) return {};
  return number_text(" | MFU %.1f%%", 100 * r.mfu) +
         (std::isnan(r.mfu_full) ? "" : number_text(" (%.1f%% full)", 100 * r.mfu_full));
}

std::string Progress::join_parts(std::span<const Part> parts, int max_priority) {
  std::string line;
  for (const Part& part : parts) {
    if (part.drop_priority <= max_priority) line += part.text;
  }
  return line;
}

std::string Progress::bar(std::int64_t step) const {
  constexpr std::int64_t kWidth = 20;
  const std::int64_t full = last_step_ > 0 ? kWidth * step / last_step_ : kWidth;
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kWidth - full), '.') + "] ";
}

}  // namespace llmc
