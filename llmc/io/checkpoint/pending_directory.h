// A directory that appears under its name only when all its files are complete.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"

namespace llmc {

// Removes the temporary directories in `root` whose names begin with `prefix`, left by writers that
// were killed, and returns their names. A writer that still runs, in this process or another, holds
// a lock, and its directory is not touched.
std::vector<std::string> remove_unfinished_directories(const std::filesystem::path& root,
                                                       std::string_view prefix = {});

// A new directory under a temporary name, with a lock that shows that its writer runs. It is
// removed with its files unless it was released.
class PendingDirectory {
 public:
  // Creates the directory next to `target`.
  explicit PendingDirectory(const std::filesystem::path& target);
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;
  ~PendingDirectory();

  const std::filesystem::path& path() const { return path_; }

  // The caller has given the directory its name.
  void release();

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
  bool released_ = false;
};

}  // namespace llmc
