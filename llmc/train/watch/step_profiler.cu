#include <cstddef>
#include <cstdio>

#include "llmc/base/file.h"
#include "llmc/base/trace_events.h"
#include "llmc/io/run_log.h"
#include "llmc/train/watch/step_profiler.h"

namespace llmc {

std::vector<ProfileRow> profile_rows(const Profiler& profiler) {
  std::vector<ProfileRow> rows;
  if (profiler.steps() == 0) return rows;
  const std::vector<Profiler::Entry> entries = profiler.entries();
  const auto steps = static_cast<double>(profiler.steps());
  const auto add = [&](const std::string& path, int depth, double calls, double milliseconds,
                       const Work& work) {
    rows.push_back({path,
                    depth,
                    calls / steps,
                    milliseconds / steps,
                    milliseconds / entries[0].milliseconds,
                    {work.flops / steps, work.bytes / steps}});
  };
  // Adds the parts of entry `parent`, then the time of `parent` that is in none of them.
  const auto add_parts = [&](const auto& self, std::size_t parent,
                             const std::string& path) -> void {
    double remaining = entries[parent].milliseconds;
    bool has_parts = false;
    for (std::size_t i = parent + 1; i < entries.size(); ++i) {
      const Profiler::Entry& entry = entries[i];
      if (entry.parent != parent) continue;
      has_parts = true;
      remaining -= entry.milliseconds;
      add(path + entry.name, entry.depth, static_cast<double>(entry.calls), entry.milliseconds,
          entry.work);
      self(self, i, path + entry.name + "/");
    }
    if (has_parts) {
      add(path + (parent == 0 ? "outside operations" : "between operations"),
          entries[parent].depth + 1, 0, remaining, {});
    }
  };
  const Profiler::Entry& step = entries[0];
  add(step.name, 0, static_cast<double>(step.calls), step.milliseconds, {});
  add_parts(add_parts, 0, "");
  return rows;
}

std::string rate_text(const ProfileRow& row) {
  const bool has_flops = row.work.flops > 0;
  const double amount = has_flops ? row.work.flops : row.work.bytes;
  if (amount <= 0 || row.milliseconds <= 0) return {};
  const double giga = amount / row.milliseconds / 1e6;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s%s/s", giga < 100 || giga >= 1000 ? 1 : 0,
                giga < 1000 ? giga : giga / 1000, giga < 1000 ? "G" : "T",
                has_flops ? "FLOP" : "B");
  return text;
}

namespace {

// Returns the table, without a line break after the last row.
std::string profile_table(const Profiler& profiler) {
  std::string table;
  char line[160];
  for (const ProfileRow& row : profile_rows(profiler)) {
    if (row.depth == 0) {
      std::snprintf(line, sizeof line,
                    "profile of %lld step%s, %.3f ms each\n%-34s %8s %10s %10s %7s",
                    static_cast<long long>(profiler.steps()), profiler.steps() == 1 ? "" : "s",
                    row.milliseconds, "operation", "calls", "ms", "ms/call", "% step");
      table += line;
      continue;
    }
    const std::string name =
        std::string(2 * static_cast<std::size_t>(row.depth - 1), ' ') + row.name();
    if (row.calls > 0) {
      std::snprintf(line, sizeof line, "\n%-34s %8.4g %10.3f %10.4f %7.2f", name.c_str(), row.calls,
                    row.milliseconds, row.milliseconds / row.calls, 100 * row.fraction);
    } else {
      std::snprintf(line, sizeof line, "\n%-34s %8s %10.3f %10s %7.2f", name.c_str(), "",
                    row.milliseconds, "", 100 * row.fraction);
    }
    table += line;
    if (const std::string rate = rate_text(row); !rate.empty()) table += "  " + rate;
  }
  return table;
}

// Returns one object per row: operation, depth, calls and milliseconds per step, percent, and
// flop_per_s or bytes_per_s if known. The first is the step itself and also has `steps`, the number
// of profiled steps.
std::string profile_json_lines(const Profiler& profiler) {
  std::string text;
  for (const ProfileRow& row : profile_rows(profiler)) {
    LogRecord record{{"operation", row.path}, {"depth", row.depth}};
    if (row.depth == 0) record.emplace_back("steps", profiler.steps());
    record.emplace_back("calls_per_step", row.calls);
    record.emplace_back("ms_per_step", row.milliseconds);
    record.emplace_back("percent", 100 * row.fraction);
    const double seconds = 1e-3 * row.milliseconds;
    if (row.work.flops > 0 && seconds > 0) {
      record.emplace_back("flop_per_s", row.work.flops / seconds);
    } else if (row.work.bytes > 0 && seconds > 0) {
      record.emplace_back("bytes_per_s", row.work.bytes / seconds);
    }
    text += log_line(record) + "\n";
  }
  return text;
}

}  // namespace

std::string profile_trace(const Profiler& profiler) {
  constexpr double kMillisecond = 1000;
  TraceEvents events;
  events.name_process(0, "rank 0");
  events.name_thread(0, 0, "operations");
  for (const Profiler::Call& call : profiler.last_calls()) {
    events.add({.name = call.name,
                .category = "operation",
                .begin = kMillisecond * call.begin,
                .end = kMillisecond * call.end});
  }
  return events.text();
}

void StepProfiler::begin_step(Stream& stream) {
  is_profiling_ = step_count_ > 0 && step_count_ <= num_steps_;
  if (is_profiling_) profiler_.begin_step(stream);
  ++step_count_;
}

std::optional<std::string> StepProfiler::end_step(Stream& stream) {
  if (!is_profiling_) return {};
  profiler_.end_step(stream);
  if (profiler_.steps() < num_steps_) return {};
  return report();
}

std::optional<std::string> StepProfiler::end_run() {
  if (profiler_.steps() == num_steps_) return {};
  if (profiler_.steps() > 0) return report();
  return "--profile: this run had no second step, so nothing was profiled (the first step is "
         "skipped)";
}

std::string StepProfiler::report() {
  if (!out_.empty())
    write_file(out_, writes_trace_ ? profile_trace(profiler_) : profile_json_lines(profiler_));
  return profile_table(profiler_);
}

}  // namespace llmc
