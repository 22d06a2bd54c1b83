#include "llmc/base/trace_events.h"

#include <cmath>
#include <cstdint>

#include "llmc/base/json.h"

namespace llmc {

namespace {

void append_line(std::string& lines, const Json& event) {
  lines += (lines.empty() ? "" : ",\n") + event.dump();
}

}  // namespace

void TraceEvents::name_process(int process, const std::string& name) {
  describe(process, 0, "process_name", "name", name);
  describe(process, 0, "process_sort_index", "sort_index", std::int64_t{process});
}

void TraceEvents::name_thread(int process, int thread, const std::string& name) {
  describe(process, thread, "thread_name", "name", name);
  describe(process, thread, "thread_sort_index", "sort_index", std::int64_t{thread});
}

void TraceEvents::describe(int process, int thread, const std::string& kind, const std::string& key,
                           const Scalar& value) {
  Json event{{"name", kind}, {"ph", "M"}, {"pid", process}, {"tid", thread}};
  event["args"][key] = scalar_json(value);
  append_line(lines_, event);
}

void TraceEvents::add(const TraceEvent& event) {
  // Readers round to nanoseconds. Boxes that touch must not overlap after that.
  const double begin = std::round(1000 * event.begin), end = std::round(1000 * event.end);
  Json json{{"name", event.name},         {"cat", event.category}, {"ph", "X"},
            {"pid", event.process},       {"tid", event.thread},   {"ts", begin / 1000},
            {"dur", (end - begin) / 1000}};
  for (const auto& [key, value] : event.args) json["args"][key] = scalar_json(value);
  append_line(lines_, json);
}

std::string TraceEvents::text() const {
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + lines_ + "\n]}\n";
}

}  // namespace llmc
