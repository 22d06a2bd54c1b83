// Keeps two runs from writing one log.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

// Locks an open file or directory for this process until the descriptor is closed. Returns false if
// another descriptor holds the lock. File systems without locks, such as some network file systems,
// do not keep processes apart.
inline bool try_lock(const FileDescriptor& fd) {
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

class LogLock {
 public:
  // Creates the log if it is missing, and locks out other runs while the object exists. Throws if
  // another run holds the lock or the log cannot be written. A log that is not a regular file, such
  // as a pipe, is not locked; an empty path neither.
  explicit LogLock(const std::filesystem::path& path) : path_(path) {
    if (!path.empty()) lock();
  }
  // Removes the log if the object created it and nothing was written: the run failed before that.
  ~LogLock() {
    struct stat status {};
    const bool empty = fd_ && ::fstat(fd_.get(), &status) == 0 && status.st_size == 0;
    if (is_new_ && empty && has_name(fd_)) ::unlink(path_.c_str());
  }
  LogLock(const LogLock&) = delete;
  LogLock& operator=(const LogLock&) = delete;

  // Call after trim_log: if a new file has taken the name of the log, locks that one instead. A run
  // that locked it in the meantime keeps it, and this one throws.
  void renew() {
    if (fd_ && !has_name(fd_)) lock();
  }

 private:
  // Whether the path names the open file, which another process may have removed or replaced.
  bool has_name(const FileDescriptor& fd) const {
    struct stat opened {};
    struct stat named {};
    return ::fstat(fd.get(), &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  }

  void lock() {
    std::error_code ignored;
    const auto status = std::filesystem::status(path_, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return;
    if (path_.has_parent_path()) make_directory(path_.parent_path());
    FileDescriptor fd;
    do {
      constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_CLOEXEC;
      const auto open = [&](int more) {
        fd = FileDescriptor(::open(path_.c_str(), kFlags | more, 0666));
      };
      open(0);
      is_new_ = false;
      if (!fd && errno == ENOENT) {
        open(O_CREAT | O_EXCL);
        is_new_ = static_cast<bool>(fd);
        if (!fd && errno == EEXIST) open(O_CREAT);  // a link to a missing file, or a new file
      }
      if (!fd) fail_file("write", path_, errno);
      if (try_lock(fd)) continue;
      is_new_ = false;
      fail("another run is writing into --log " + path_.string(),
           "wait until that run ends, or give another --log");
    } while (!has_name(fd));
    fd_ = std::move(fd);
  }

  std::filesystem::path path_;
  FileDescriptor fd_;
  bool is_new_ = false;
};

}  // namespace llmc
