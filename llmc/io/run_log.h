// The run log: JSON lines, one object a line, appended as the run goes and whole after every line.
// JSON has no infinity and no NaN; such a number is written as null (the loss of a step that was
// skipped, say).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/json_value.h"
#include "llmc/base/lines.h"

namespace llmc {

// One line: keys and values in the order in which they are written.
using LogRecord = std::vector<std::pair<std::string, Scalar>>;

// {"step":3,"loss":2.5}, without an end of line.
inline std::string log_line(const LogRecord& record) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : record) {
    json[key] = scalar_json(value);
  }
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// What was to be logged is sound, and stays so where the log cannot be written.
struct LogError : Error {
  explicit LogError(const Error& error) : Error(error) {}
};

class RunLog {
 public:
  // Starts the file anew, or continues it with `append`. Throws when it cannot be written. Pipes
  // and terminals will do.
  explicit RunLog(const std::filesystem::path& path, bool append = false) : path_(path) {
    if (path.has_parent_path()) make_directory(path.parent_path());
    const int mode = append ? O_APPEND : O_TRUNC | O_APPEND;
    fd_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666));
    if (!fd_) fail_file("write", path, errno);
  }

  // One line, given to the system at once: a killed run loses none, a power cut perhaps the last.
  // Throws a LogError, as when the disk is full.
  void write(const LogRecord& record) { write_line(log_line(record)); }
  void write(std::initializer_list<std::pair<std::string, Scalar>> record) {
    write(LogRecord(record));
  }

 private:
  void write_line(std::string line) {
    line += '\n';
    try {
      write_all(fd_, std::as_bytes(std::span(line)), path_);
    } catch (const Error& error) {
      throw LogError(error);
    }
  }

  std::filesystem::path path_;
  FileDescriptor fd_;
};

// Throws for what is not a JSON object of numbers, texts, truth values and nulls.
inline LogRecord parse_log_line(std::string_view line, const std::string& what) {
  const auto json = parse_json<OrderedJson>(line, what);
  if (!json.is_object()) fail(what + " is not a JSON object");
  LogRecord record;
  for (const auto& [key, value] : json.items()) {
    record.emplace_back(key, json_scalar(value, what + ": " + printable(key)));
  }
  return record;
}

// The value of a key, or null where the record has none.
inline Scalar log_value(const LogRecord& record, std::string_view key) {
  for (const auto& [name, value] : record) {
    if (name == key) return value;
  }
  return {};
}

// All lines of a log. Throws for one that is damaged, naming it.
inline std::vector<LogRecord> read_log(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<LogRecord> records;
  for (Lines lines(text); lines.next();) {
    const std::string what = path.string() + " line " + std::to_string(lines.number());
    records.push_back(parse_log_line(lines.line(), what));
  }
  return records;
}

struct TrimmedLog {
  std::int64_t kept = 0;
  std::int64_t dropped = 0;  // lines of later steps
  std::int64_t damaged = 0;  // lines that are no JSON object, such as the last of a killed run
};

// Before a run is resumed after `last_step`: drops the lines whose `step` is greater, which will be
// written again, and damaged ones, so that each step stands in the log once. Lines without a step
// stay. What stays keeps its bytes. A log that is not there, or is no regular file, is left alone.
inline TrimmedLog trim_log(const std::filesystem::path& path, std::int64_t last_step) {
  TrimmedLog trimmed;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return trimmed;
  const std::string text = read_file(path);
  std::string kept;
  const bool whole = text.empty() || text.ends_with('\n');
  for (Lines lines(text); lines.next();) {
    try {
      const Scalar step = log_value(parse_log_line(lines.line(), "a line"), "step");
      if (step.is_number() && step.number("step") > static_cast<double>(last_step)) {
        ++trimmed.dropped;
        continue;
      }
    } catch (const Error&) {
      ++trimmed.damaged;
      continue;
    }
    ++trimmed.kept;
    kept.append(lines.line()).append("\n");
  }
  if (!whole || trimmed.dropped + trimmed.damaged > 0) write_file(path, kept);
  return trimmed;
}

}  // namespace llmc
