#include "llmc/io/run_log.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "llmc/base/json.h"
#include "llmc/base/lines.h"

namespace llmc {

std::string log_line(const LogRecord& record) {
  Json json = Json::object();
  for (const auto& [key, value] : record) {
    json[key] = scalar_json(value);
  }
  return json.dump();
}

RunLog::RunLog(const std::filesystem::path& path, bool append) : path_(path) {
  if (path.has_parent_path()) make_directory(path.parent_path());
  const int mode = append ? O_APPEND : O_TRUNC | O_APPEND;
  fd_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666));
  if (!fd_) fail_file("write", path, errno);
}

void RunLog::write_line(std::string line) {
  line += '\n';
  try {
    write_all(fd_, std::as_bytes(std::span(line)), path_);
  } catch (const Error& error) {
    throw LogError(error);
  }
}

LogRecord parse_log_line(std::string_view line, const std::string& what) {
  const auto json = parse_json(line, what, KeyOrder::as_written);
  if (!json.is_object()) fail(what + " is not a JSON object");
  LogRecord record;
  for (const auto& [key, value] : json.items()) {
    record.emplace_back(key, json_scalar(value, what + ": " + printable(key)));
  }
  return record;
}

Scalar log_value(const LogRecord& record, std::string_view key) {
  for (const auto& [name, value] : record) {
    if (name == key) return value;
  }
  return {};
}

std::vector<LogRecord> read_log(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<LogRecord> records;
  for (Lines lines(text); lines.next();) {
    const std::string what = path.string() + " line " + std::to_string(lines.number());
    records.push_back(parse_log_line(lines.line(), what));
  }
  return records;
}

namespace {

// Whether a run that resumes after `last_step`, -1 if it begins again, will not write the record.
bool is_of_earlier_step(const LogRecord& record, std::int64_t last_step) {
  const Scalar step = log_value(record, "step");
  if (!step.is_number()) return true;
  const bool begins_process = !log_value(record, "run").is_null();
  const std::int64_t last = begins_process ? std::max<std::int64_t>(last_step, 0) : last_step;
  return step.number("step") <= static_cast<double>(last);
}

}  // namespace

LogTrimResult trim_log(const std::filesystem::path& path, std::int64_t last_step) {
  LogTrimResult result;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return result;
  const std::string text = read_file(path);
  std::string kept_lines;
  const bool ends_with_newline = text.empty() || text.ends_with('\n');
  for (Lines lines(text); lines.next();) {
    try {
      if (!is_of_earlier_step(parse_log_line(lines.line(), "a line"), last_step)) {
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
