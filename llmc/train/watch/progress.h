// The progress of a run on stderr, and the run log for programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/io/run_log.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/train/watch/eta.h"

namespace llmc {

struct StepRecord {
  std::int64_t step = 0;  // steps done, including this one
  double loss = 0, grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  // tokens trained on so far, including those before a resume
  double epoch = 0;         // samples so far / samples of an epoch
  double tok_per_s = 0;
  // Fractions of the peak: attention causal, or full. Not a number: more than the peak.
  double mfu = 0, mfu_full = 0;
  double step_ms = 0;
  double loss_scale = 0;  // fp16: of this step; 0: no loss scale
  std::string qat = {};   // --qat of a quantized step
  LogRecord more = {};    // further values for the log
};

// The message for a skipped update.
std::string skipped_update_text(std::int64_t step, double loss, const OptimizerState& optimizer);

// On a terminal, prints one line that is overwritten; elsewhere, prints a line every few seconds.
class Progress {
 public:
  // If `log_path` is empty, there is no log. `append` is true for a resumed run.
  Progress(const std::string& log_path, bool append, std::int64_t last_step)
      : terminal_(Notice::terminal()), last_step_(last_step) {
    if (!log_path.empty()) log_ = std::make_unique<RunLog>(log_path, append);
  }

  void step(const StepRecord& r);

  void validation(std::int64_t step, double loss);

  // Writes a line to the log. If that fails, the log ends there, and failed() is true from then on.
  void log(const LogRecord& line);
  bool failed() const { return failure_ != nullptr; }
  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  // Writes a line to the log and prints `text`.
  void record(const LogRecord& line, const std::string& text);

  // The time left, which the run updates.
  Eta& eta() { return eta_; }

  // Prints `text` on a line of its own.
  void note(const std::string& text) { Notice::print(text); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Part {
    int drop_priority;  // if the line is too wide: highest first; 0: never
    std::string text;
  };

  double seconds_since_shown() const {
    return std::chrono::duration<double>(Clock::now() - last_shown_).count();
  }

  void show(const StepRecord& r);

  // " | MFU 41.0% (43.5% full)", without the numbers that are unknown.
  static std::string mfu_part(const StepRecord& r);

  // Joins the parts with a drop priority of at most `max_priority`.
  static std::string join_parts(std::span<const Part> parts, int max_priority);

  std::string bar(std::int64_t step) const;

  bool terminal_;
  std::int64_t last_step_, first_step_ = 0;
  Eta eta_;
  Clock::time_point last_shown_{};
  std::unique_ptr<RunLog> log_;
  std::exception_ptr failure_;  // of the log
};

}  // namespace llmc
