// OUT/status.json: the state of a run, for schedulers and scripts that start, stop and requeue it.
// Rank 0 writes it when the run owns --out, with the status "running", and again at the end. So the
// file of a run that was killed stays at "running". Each write replaces the file atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "llmc/base/signal_request.h"

namespace llmc {

inline constexpr const char* kStatusFile = "status.json";

// Throws if OUT/status.json exists and is not the status of a run: it must not be overwritten.
void check_status_file(const std::filesystem::path& out);

// The work of a run so far.
struct RunProgress {
  std::int64_t step = 0;        // steps done
  std::int64_t steps = 0;       // --steps
  std::string checkpoint = {};  // path of the newest one; empty: none
};

class RunStatus {
 public:
  // Writes "running", and removes temporary files that a killed run left. The caller has locked
  // `out` and called check_status_file(). Nothing is ever written if `out` is empty: without --out,
  // and on other ranks than 0. While the object exists, a signal that ends the process writes
  // "stopped", or "failed" if it follows an error of another rank.
  RunStatus(const std::filesystem::path& out, RunProgress progress);
  // Destroy the object before the lock of `out`. Nothing is written afterwards.
  ~RunStatus();
  RunStatus(const RunStatus&) = delete;
  RunStatus& operator=(const RunStatus&) = delete;

  // Notes the progress for the next write.
  void set_progress(RunProgress progress);

  // The end of the run; only the first call counts. They throw if the file cannot be written.
  void finish();
  // The run is not complete, and --resume continues it.
  void stop(const std::string& reason);
  // An error ended the run. Does not throw: the error itself is reported.
  void fail(const ReportedError& error) noexcept;

 private:
  struct State;

  std::shared_ptr<State> state_;  // the answer to a signal may outlive the object
  bool answers_signals_ = false;
};

}  // namespace llmc
