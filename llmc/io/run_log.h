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
#include "llmc/base/json_value.h"

namespace llmc {

// One line: keys and values in the order in which they are written.
using LogRecord = std::vector<std::pair<std::string, Scalar>>;

// {"step":3,"loss":2.5}, without an end of line.
std::string log_line(const LogRecord& record);

// Thrown if a log line cannot be written. The values to log are still valid.
struct LogError : Error {
  explicit LogError(const Error& error) : Error(error) {}
};

class RunLog {
 public:
  // Truncates the file, or appends to it with `append`. Throws if the file cannot be opened for
  // writing. Pipes and terminals are allowed.
  explicit RunLog(const std::filesystem::path& path, bool append = false);

  // Writes one line to the kernel immediately: a killed run loses no line, a power cut may lose the
  // last ones. Throws a LogError, for example if the disk is full.
  void write(const LogRecord& record) { write_line(log_line(record)); }
  void write(std::initializer_list<std::pair<std::string, Scalar>> record) {
    write(LogRecord(record));
  }

 private:
  void write_line(std::string line);

  std::filesystem::path path_;
  FileDescriptor fd_;
};

// Throws unless the line is a JSON object whose values are numbers, strings, booleans or nulls.
LogRecord parse_log_line(std::string_view line, const std::string& what);

// Returns the value of a key, or null if the record does not have the key.
Scalar log_value(const LogRecord& record, std::string_view key);

// Returns all lines of a log. Throws if a line is damaged; the error names the line.
std::vector<LogRecord> read_log(const std::filesystem::path& path);

struct LogTrimResult {
  std::int64_t num_kept = 0;
  std::int64_t num_dropped = 0;  // lines of later steps
  std::int64_t num_damaged = 0;  // lines that are not JSON objects, such as a partial last line
};

// Prepares the log for a run that resumes after `last_step`, or begins again at step 0 if that is
// -1. Drops damaged lines and lines with a greater `step`: the run writes those steps again, and
// each step is in the log once. Lines without a step are kept, and first lines of processes (`run`)
// at step 0. Kept lines keep their bytes. A missing log, or one that is not a regular file,
// is not changed.
LogTrimResult trim_log(const std::filesystem::path& path, std::int64_t last_step);

}  // namespace llmc
