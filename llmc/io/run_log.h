// The run log: JSON lines, one object per line. The run appends to it, and the file is complete
// after every line. JSON has no infinity and no NaN; such a number is written as null (for example
// the loss of a skipped step).
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

// Thrown if a log line cannot be written. The values to log are still valid.
struct LogError : Error {
  explicit LogError(const Error& error) : Error(error) {}
};

class RunLog {
 public:
  // Truncates the file, or appends to it with `append`. Throws if the file cannot be opened for
  // writing. Pipes and terminals are allowed.
  explicit RunLog(const std::filesystem::path& path, bool append = false) : path_(path) {
    if (path.has_parent_path()) make_directory(path.parent_path());
    const int mode = append ? O_APPEND : O_TRUNC | O_APPEND;
    fd_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666));
    if (!fd_) fail_file("write", path, errno);
  }

  // Writes one line to the kernel immediately: a killed run loses no line, a power cut may lose the
  // last ones. Throws a LogError, for example if the disk is full.
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

// Throws unless the line is a JSON object whose values are numbers, strings, booleans or nulls.
inline LogRecord parse_log_line(std::string_view line, const std::string& what) {
  const auto json = parse_json<OrderedJson>(line, what);
  if (!json.is_object()) fail(what + " is not a JSON object");
  LogRecord record;
  for (const auto& [key, value] : json.items()) {
    record.emplace_back(key, json_scalar(value, what + ": " + printable(key)));
  }
  return record;
}

// Returns the value of a key, or null if the record does not have the key.
inline Scalar log_value(const LogRecord& record, std::string_view key) {
  for (const auto& [name, value] : record) {
    if (name == key) return value;
  }
  return {};
}

// Returns all lines of a log. Throws if a line is damaged; the error names the line.
inline std::vector<LogRecord> read_log(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<LogRecord> records;
  for (Lines lines(text); lines.next();) {
    const std::string what = path.string() + " line " + std::to_string(lines.number());
    records.push_back(parse_log_line(lines.line(), what));
  }
  return records;
}

struct LogTrimResult {
  std::int64_t num_kept = 0;
  std::int64_t num_dropped = 0;  // lines of later steps
  std::int64_t num_damaged = 0;  // lines that are not JSON objects, such as a partial last line
};

// Prepares the log for a run that resumes after `last_step`. Drops damaged lines and lines with a
// greater `step`: the run writes those steps again, and each step is in the log once. Lines without
// a step are kept. Kept lines keep their bytes. A missing log, or one that is not a regular file,
// is not changed.
inline LogTrimResult trim_log(const std::filesystem::path& path, std::int64_t last_step) {
  LogTrimResult result;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return result;
  const std::string text = read_file(path);
  std::string kept_lines;
  const bool ends_with_newline = text.empty() || text.ends_with('\n');
  for (Lines lines(text); lines.next();) {
    try {
      const Scalar step = log_value(parse_log_line(lines.line(), "a line"), "step");
      if (step.is_number() && step.number("step") > static_cast<double>(last_step)) {
        ++result.num_dropped;
        continue;
      }
    } catch (const Error&) {
      ++result.num_damaged;
      continue;
    }
    ++result.num_kept;
    kept_lines.append(lines.line()).append("\n");
  }
  if (!ends_with_newline || result.num_dropped + result.num_damaged > 0)
    write_file(path, kept_lines);
  return result;
}

}  // namespace llmc
