// Keeps two runs from writing one log.
#pragma once

#include <filesystem>

#include "llmc/base/file.h"

namespace llmc {

// Locks an open file or directory for this process until the descriptor is closed. Returns false if
// another descriptor holds the lock. File systems without locks, such as some network file systems,
// do not keep processes apart.
bool try_lock(const FileDescriptor& fd);

class LogLock {
 public:
  // Creates the log if it is missing, and locks out other runs while the object exists. Throws if
  // another run holds the lock or the log cannot be written. A log that is not a regular file, such
  // as a pipe, is not locked; an empty path neither.
  explicit LogLock(const std::filesystem::path& path) : path_(path) {
    if (!path.empty()) lock();
  }
  // Removes the log if the object created it and nothing was written: the run failed before that.
  ~LogLock();
  LogLock(const LogLock&) = delete;
  LogLock& operator=(const LogLock&) = delete;

  // Call after trim_log: if a new file has taken the name of the log, locks that one instead. A run
  // that locked it in the meantime keeps it, and this one throws.
  void renew() {
    if (fd_ && !has_name(fd_)) lock();
  }

 private:
  // Whether the path names the open file, which another process may have removed or replaced.
  bool has_name(const FileDescriptor& fd) const;

  void lock();

  std::filesystem::path path_;
  FileDescriptor fd_;
  bool is_new_ = false;
};

}  // namespace llmc
