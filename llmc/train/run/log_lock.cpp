#include "llmc/train/run/log_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"

namespace llmc {

bool try_lock(const FileDescriptor& fd) {
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

LogLock::~LogLock() {
  struct stat status {};
  const bool empty = fd_ && ::fstat(fd_.get(), &status) == 0 && status.st_size == 0;
  if (is_new_ && empty && has_name(fd_)) ::unlink(path_.c_str());
}

bool LogLock::has_name(const FileDescriptor& fd) const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd.get(), &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void LogLock::lock() {
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

}  // namespace llmc
