#include "llmc/io/checkpoint/pending_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "llmc/base/unfinished_files.h"

namespace llmc {

std::vector<std::string> remove_unfinished_directories(const std::filesystem::path& root,
                                                       std::string_view prefix) {
  std::vector<std::string> removed;
  for (const std::filesystem::path& path : directories_in(root)) {
    const std::string name = path.filename().string();
    if (!is_temporary_name(name) || !name.starts_with(prefix)) continue;
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (!error) removed.push_back(name);
  }
  return removed;
}

PendingDirectory::PendingDirectory(const std::filesystem::path& target) {
  for (int error = EEXIST; error == EEXIST;) {
    path_ = temporary_name(target);
    UnfinishedFiles::create(path_, [&] {
      error = ::mkdir(path_.c_str(), 0777) == 0 ? 0 : errno;
      return error == 0;
    });
    if (error != 0 && error != EEXIST) fail_file("create the directory", path_, error);
  }
  lock_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // If the file system has no locks, a later writer cannot take one either and then removes
  // nothing.
  if (lock_) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

PendingDirectory::~PendingDirectory() {
  UnfinishedFiles::finish(path_, [this] {
    std::error_code ignored;
    if (!released_) std::filesystem::remove_all(path_, ignored);
  });
}

void PendingDirectory::release() {
  UnfinishedFiles::finish(path_, [this] { released_ = true; });
}

}  // namespace llmc
