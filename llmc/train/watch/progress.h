// The progress of a run on stderr, and the run log for programs.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "llmc/base/terminal.h"
#include "llmc/device/resource_usage.h"
#include "llmc/io/run_log.h"
#include "llmc/ops/optimizer/optimizer_state.h"

namespace llmc {

struct StepRecord {
  std::int64_t step = 0;  // steps done, including this one
  double loss = 0, grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  // tokens trained on so far, including those before a resume
  double tok_per_s = 0;
  double mfu = 0, mfu_full = 0;  // fractions of the peak: attention causal, or full
  double step_ms = 0;
  double loss_scale = 0;  // fp16: of this step; 0: no loss scale
};

// Appends the values that are available, rounded to a tenth: cpu_percent (100: one core),
// host_mem_mb and gpu_mem_mb (MiB), gpu_util (percent), gpu_power_w, gpu_temp_c.
inline void append_usage(LogRecord& line, const ResourceUsage& usage) {
  const auto append = [&](const char* key, std::optional<double> value, double factor) {
    if (value) line.emplace_back(key, std::round(10 * factor * *value) / 10);
  };
  constexpr double kPerMebibyte = 1.0 / (1 << 20);
  append("cpu_percent", usage.processors, 100);
  append("host_mem_mb", usage.host_memory, kPerMebibyte);
  append("gpu_util", usage.gpu.utilisation, 1);
  append("gpu_power_w", usage.gpu.power, 1);
  append("gpu_mem_mb", usage.gpu.memory, kPerMebibyte);
  append("gpu_temp_c", usage.gpu.temperature, 1);
}

inline std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld h %02lld min", s / 3600, s / 60 % 60);
  } else if (s >= 60) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld s", s);
  }
  return text;
}

// The message for a skipped update.
inline std::string skipped_update_text(std::int64_t step, double loss,
                                       const OptimizerState& optimizer) {
  std::string text = "step " + std::to_string(step) + ": loss " + std::to_string(loss) +
                     ", gradient norm " + std::to_string(optimizer.gradient_norm) +
                     ": not finite, update skipped (" + std::to_string(optimizer.skipped) +
                     " in all)";
  if (optimizer.loss_scale != optimizer.used_loss_scale) {
    text += ", loss scale " + std::to_string(std::lround(optimizer.used_loss_scale)) + " -> " +
            std::to_string(std::lround(optimizer.loss_scale));
  }
  return text;
}

// On a terminal, prints one line that is overwritten; elsewhere, prints a line every few seconds.
class Progress {
 public:
  // If `log_path` is empty, there is no log. `append` is true for a resumed run.
  Progress(const std::string& log_path, bool append, std::int64_t last_step)
      : terminal_(isatty(STDERR_FILENO) != 0), last_step_(last_step), start_(Clock::now()) {
    if (!log_path.empty()) log_ = std::make_unique<RunLog>(log_path, append);
  }

  void step(const StepRecord& r) {
    if (log_) {
      LogRecord line{{"step", r.step}, {"loss", r.loss},         {"grad_norm", r.grad_norm},
                     {"lr", r.lr},     {"tokens", r.tokens},     {"tok_per_s", r.tok_per_s},
                     {"mfu", r.mfu},   {"mfu_full", r.mfu_full}, {"step_ms", r.step_ms}};
      if (r.loss_scale > 0) line.emplace_back("loss_scale", r.loss_scale);
      append_usage(line, meter_.read());
      log_->write(line);
    }
    if (first_step_ == 0) first_step_ = r.step;
    const double waited = std::chrono::duration<double>(Clock::now() - shown_).count();
    const bool ends = r.step == first_step_ || r.step == last_step_;
    if (ends || waited > (terminal_ ? 0.2 : 5.0)) show(r);
  }

  void validation(std::int64_t step, double loss) {
    if (log_) log_->write({{"step", step}, {"val_loss", loss}});
    char text[64];
    std::snprintf(text, sizeof text, "step %lld: validation loss %.4f",
                  static_cast<long long>(step), loss);
    note(text);
  }

  // Shows the progress of a long task: `done` of `total` parts after `seconds`.
  void part(const std::string& what, std::int64_t done, std::int64_t total, double seconds) {
    const double waited = std::chrono::duration<double>(Clock::now() - shown_).count();
    if (waited < (terminal_ ? 0.2 : 5.0)) return;
    shown_ = Clock::now();
    const double share = static_cast<double>(done) / static_cast<double>(total);
    char text[128];
    std::snprintf(text, sizeof text, "%s: %.0f%% | ETA %s", what.c_str(), 100 * share,
                  duration_text(seconds / share - seconds).c_str());
    if (!terminal_) return note(text);
    std::cerr << live_line(text) << std::flush;
    line_open_ = true;
  }

  // Writes a line to the log and prints `text`.
  void record(const LogRecord& line, const std::string& text) {
    if (log_) log_->write(line);
    note(text);
  }

  // Prints `text` on a line of its own.
  void note(const std::string& text) {
    end_line();
    std::cerr << text << std::endl;
  }

  void end_line() {
    if (line_open_) std::cerr << '\n';
    line_open_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Part {
    int goes;  // drop priority if the line is too wide: highest first; 0: never
    std::string text;
  };

  void show(const StepRecord& r) {
    shown_ = Clock::now();
    const double elapsed = std::chrono::duration<double>(shown_ - start_).count();
    const auto done = static_cast<double>(r.step - first_step_ + 1);
    const double left = elapsed / done * static_cast<double>(last_step_ - r.step);
    const auto steps = [](std::int64_t step) { return std::to_string(step); };
    // Drop priority: on a narrow terminal the part with the highest number is dropped first; 0 is
    // never dropped.
    const Part parts[] = {{9, bar(r.step)},
                          {0, "step " + steps(r.step) + "/" + steps(last_step_)},
                          {0, formatted(" | loss %.4f", r.loss)},
                          {6, formatted(" | grad norm %.3f", r.grad_norm)},
                          {5, formatted(" | lr %.2e", r.lr)},
                          {8, formatted(" | %.0f ms", r.step_ms)},
                          {4, formatted(" | %.0f tok/s", r.tok_per_s)},
                          {7, formatted(" | MFU %.1f%%", 100 * r.mfu) +
                                  formatted(" (%.1f%% full)", 100 * r.mfu_full)},
                          {3, " | ETA " + duration_text(left)}};
    if (!terminal_) return note(joined(parts, 8));
    const std::size_t width = live_line_width();
    int most = 9;
    while (most > 0 && joined(parts, most).size() > width) --most;
    std::cerr << live_line(joined(parts, most)) << std::flush;
    line_open_ = true;
  }

  // Joins the parts with a drop priority of at most `most`.
  static std::string joined(std::span<const Part> parts, int most) {
    std::string line;
    for (const Part& part : parts) {
      if (part.goes <= most) line += part.text;
    }
    return line;
  }

  static std::string formatted(const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return text;
  }

  std::string bar(std::int64_t step) const {
    constexpr std::int64_t kWidth = 20;
    const std::int64_t full = last_step_ > 0 ? kWidth * step / last_step_ : kWidth;
    return "[" + std::string(static_cast<std::size_t>(full), '#') +
           std::string(static_cast<std::size_t>(kWidth - full), '.') + "] ";
  }

  bool terminal_;
  std::int64_t last_step_, first_step_ = 0;
  Clock::time_point start_, shown_{};
  bool line_open_ = false;
  std::unique_ptr<RunLog> log_;
  ResourceMeter meter_;
};

}  // namespace llmc
