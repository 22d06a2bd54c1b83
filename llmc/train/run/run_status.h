// OUT/status.json: the state of a run, for schedulers and scripts that start, stop and requeue it.
// Rank 0 writes it when the run owns --out, with the status "running", and again at the end. So the
// file of a run that was killed stays at "running". Each write replaces the file atomically.
//
// An error of one rank ends the others, and rank 0 may be killed before it can write. So a rank
// that fails writes "failed" itself, if the file still has the text that rank 0 wrote for this run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

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
  // The object of a rank. Nothing is ever written if `out` is empty.
  RunStatus(std::filesystem::path out, RunProgress progress);
  // Destroy the object of rank 0 before the lock of `out`. Nothing is written afterwards.
  ~RunStatus();
  RunStatus(const RunStatus&) = delete;
  RunStatus& operator=(const RunStatus&) = delete;

  // On rank 0: writes "running", and removes temporary files that a killed run left. Returns the
  // text. The caller has locked `out` and called check_status_file(). From now on, a signal that
  // ends the process writes "stopped".
  std::string begin();

  // On the other ranks: `text` is that of begin(). Without it, the object writes nothing.
  void join(const std::string& text);

  // Notes the progress for the next write.
  void set_progress(RunProgress progress);

  // The end of the run, on rank 0; nothing is written afterwards. They throw if the file cannot be
  // written.
  void finish();
  // The run is not complete, and --resume continues it.
  void stop(const std::string& reason);

  // An error ended the run; on any rank, and only the first rank writes. Reports no error of its
  // own, and waits at most two seconds for a disk that does not answer.
  void fail(int exit_code, const std::string& reason) noexcept;

 private:
  struct State;

  std::shared_ptr<State> state_;  // the answer to a signal may outlive the object
  bool answers_signals_ = false;
};

}  // namespace llmc
