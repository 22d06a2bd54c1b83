#include "llmc/train/run/run_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/run_log.h"
#include "llmc/train/run/log_lock.h"
#include "llmc/train/run/run_status.h"

namespace llmc {

namespace {

// Creates the checkpoint directory if it is missing, and locks out other runs while the returned
// descriptor is open. Throws if the directory is not writable or another run holds the lock.
FileDescriptor lock_output_directory(const std::filesystem::path& path) {
  make_directory(path);
  if (::access(path.c_str(), W_OK | X_OK) != 0) fail_file("write into --out", path, errno);
  FileDescriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock && !try_lock(lock)) {
    fail("another run is writing into --out " + path.string(),
         "wait until that run ends, or give another --out");
  }
  return lock;
}

// For a new run: throws if the directory has checkpoints of another run.
void refuse_used_output(const std::filesystem::path& path) {
  const CheckpointSearchResult newest = find_newest_checkpoint(path);
  if (!newest.path) return;
  fail("--out " + path.string() + " contains checkpoints of another run (" + newest.path->string() +
           ")",
       "give --resume to continue that run, or another --out");
}

}  // namespace

void refuse_used_log(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  if (std::filesystem::file_size(path, error) == 0) return;
  fail("--log " + path.string() + " exists",
       "give another --log, or --resume to continue the run that it belongs to");
}

namespace {

// A resumed run cuts its log to the steps it has (trim_log), so the file must be a run log. Throws
// unless its first line has a step. An empty file, a single incomplete line (the run was killed)
// and a line of zeros (power failure) are accepted.
void require_run_log(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  const std::string text = read_file(path);
  const std::string line = text.substr(0, text.find('\n'));
  if (text.empty() || line.starts_with('\0')) return;
  if (line.starts_with('{') && line.size() == text.size()) return;
  try {
    if (log_value(parse_log_line(line, "the line"), "step").is_number()) return;
  } catch (const Error&) {
  }
  fail("--log " + path.string() + " is not the log of a run: its first line has no step",
       "give the log of the resumed run, or a new file name");
}

// Throws if the file cannot be written now. An empty path is accepted.
void check_writable(const std::string& path) {
  if (!path.empty()) AtomicFile trial(path);
}

}  // namespace

FileDescriptor check_run_output(const OutputSettings<Resolved>& settings,
                                const SampleSettings<Resolved>& samples) {
  check_writable(samples.final_out);
  check_writable(settings.profile_out);
  if (settings.resume && !settings.log.empty()) require_run_log(settings.log);
  if (!settings.resume && !settings.log.empty()) refuse_used_log(settings.log);
  if (settings.out.empty()) return FileDescriptor();
  FileDescriptor lock = lock_output_directory(settings.out);
  if (!settings.resume) refuse_used_output(settings.out);
  check_status_file(settings.out);
  return lock;
}

}  // namespace llmc
