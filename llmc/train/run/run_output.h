// The places that a run writes to, looked at before its first step: hours of work must not end at
// their first save, and nothing of another run, or of no run, is overwritten.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/run_log.h"

namespace llmc {

// Makes the directory of the checkpoints, where missing, and keeps other runs out of it for as long
// as what it returns lives. Throws where nothing can be written into it or another run has it.
inline FileDescriptor hold_output_directory(const std::filesystem::path& path) {
  make_directory(path);
  if (::access(path.c_str(), W_OK | X_OK) != 0) fail_file("write into --out", path, errno);
  FileDescriptor held(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // On disks without locks, some of those in a network, runs are not kept apart.
  if (held && ::flock(held.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    fail("another run is writing into --out " + path.string(),
         "wait until it has ended, or give another --out");
  }
  return held;
}

// A run that begins finds no other run's checkpoints in its directory.
inline void refuse_used_output(const std::filesystem::path& path) {
  const FoundCheckpoint found = find_newest_checkpoint(path);
  if (!found.path) return;
  fail(
      "--out " + path.string() + " holds checkpoints of another run (" + found.path->string() + ")",
      "--resume goes on from there; or give another --out");
}

// A run that begins has a log of its own.
inline void refuse_used_log(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  if (std::filesystem::file_size(path, ignored) == 0) return;
  fail("--log " + path.string() + " exists",
       "give another name, or --resume the run it belongs to");
}

// A run that goes on cuts its log to the steps it has (trim_log): that must be a log. Its first
// line has a step, unless a kill cut that line off or a power cut made it zeros.
inline void require_run_log(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const std::string text = read_file(path);
  const std::string line = text.substr(0, text.find('\n'));
  if (text.empty() || line.starts_with('\0')) return;
  if (line.starts_with('{') && line.size() == text.size()) return;
  try {
    if (log_value(parse_log_line(line, "the line"), "step").is_number()) return;
  } catch (const Error&) {
  }
  fail("--log " + path.string() + " is not the log of a run: its first line has no step",
       "the log of the run that goes on, or another name");
}

// Throws where the file could not be written now.
inline void check_writable(const std::string& path) {
  if (!path.empty()) AtomicFile trial(path);
}

// Runs all checks above (those of --resume are in resuming.h). Keep the returned lock open for the
// whole run.
inline FileDescriptor check_run_output(const OutputSettings<Resolved>& settings,
                                       const SampleSettings<Resolved>& samples) {
  check_writable(samples.final_out);
  check_writable(settings.profile_out);
  if (settings.resume && !settings.log.empty()) require_run_log(settings.log);
  if (!settings.resume && !settings.log.empty()) refuse_used_log(settings.log);
  if (settings.out.empty()) return FileDescriptor();
  FileDescriptor lock = hold_output_directory(settings.out);
  if (!settings.resume) refuse_used_output(settings.out);
  return lock;
}

}  // namespace llmc
