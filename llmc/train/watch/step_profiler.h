// --profile N: the time of N training steps by operation, as a table on stderr, as JSON lines for
// programs, or as a trace of the last of these steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/profiler.h"

namespace llmc {

// A line of the table, averaged over the steps. Time between the parts of an operation, and time
// outside all operations, has its own line. Lines of one depth under one parent thus add up to it.
struct ProfileRow {
  std::string path;  // "forward/gelu forward"
  int depth = 0;     // 0: the step
  double calls = 0;  // 0: time between or outside operations
  double milliseconds = 0;
  double fraction = 0;  // of the step's time
  Work work;

  std::string name() const { return path.substr(path.rfind('/') + 1); }
};

std::vector<ProfileRow> profile_rows(const Profiler& profiler);

// "12.3 GFLOP/s" or "1.23 TB/s"; empty if the work is unknown.
std::string rate_text(const ProfileRow& row);

// Chrome's trace event format (base/trace_events.h): the calls of the last step, which the profiler
// has kept.
std::string profile_trace(const Profiler& profiler);

// Profiles steps 2 to N+1. Step 1 is skipped because libraries allocate memory and choose
// algorithms in it.
class StepProfiler {
 public:
  // If `steps` is 0, nothing is profiled. `out` is a file for a trace if it ends in .json, else for
  // the JSON lines; or empty.
  StepProfiler(std::int64_t steps, std::string out)
      : num_steps_(steps), out_(std::move(out)), writes_trace_(out_.ends_with(".json")) {
    if (writes_trace_) profiler_.keep_calls();
  }

  void begin_step(Stream& stream);
  // Returns the table after the last profiled step.
  std::optional<std::string> end_step(Stream& stream);
  // For a run that ended earlier: returns the table of the profiled steps, or a note that there are
  // none.
  std::optional<std::string> end_run();

 private:
  std::string report();

  std::int64_t num_steps_;
  std::string out_;
  bool writes_trace_;
  std::int64_t step_count_ = 0;  // steps of this run so far
  bool is_profiling_ = false;
  Profiler profiler_;
};

}  // namespace llmc
