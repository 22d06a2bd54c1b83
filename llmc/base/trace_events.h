// Chrome's trace event format (JSON), which chrome://tracing and Perfetto show: rows of boxes on an
// axis of time. A row is a thread of a process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json_value.h"

namespace llmc {

// A box. Boxes of one thread lie inside each other or do not overlap.
struct TraceEvent {
  int process = 0, thread = 0;
  std::string name, category;
  double begin = 0, end = 0;                              // microseconds, written to the nanosecond
  std::vector<std::pair<std::string, Scalar>> args = {};  // shown if a reader selects the box
};

class TraceEvents {
 public:
  // Processes and threads are shown in the order of their numbers.
  void name_process(int process, const std::string& name);
  void name_thread(int process, int thread, const std::string& name);
  void add(const TraceEvent& event);

  // The file: one event per line.
  std::string text() const;

 private:
  void describe(int process, int thread, const std::string& kind, const std::string& key,
                const Scalar& value);

  std::string lines_;
};

}  // namespace llmc
