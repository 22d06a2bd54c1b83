// The inputs of a program: files, and pipes, which are first copied to an unnamed file. Both are
// mapped, so that they can be read several times.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"

namespace llmc {

inline constexpr const char* kStdin = "/dev/stdin";

// The path of an input: "-" stands for stdin.
inline std::string input_path(const std::string& name) {
  return name == "-" ? kStdin : name;
}

// Whether a path is stdin or another descriptor of the process, such as /dev/fd/63, the path that
// the shell passes for <(COMMAND).
inline bool is_descriptor_path(std::string_view path) {
  return path == kStdin || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

// The status of an input, or nothing if there is no such input.
inline std::optional<struct stat> input_status(const std::string& path) {
  struct stat status {};
  const bool is_stdin = path == kStdin;
  const int result = is_stdin ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status);
  return result == 0 ? std::optional(status) : std::nullopt;
}

// Whether the bytes of an input can be read only once: those of a pipe, a socket or a device.
inline bool is_pipe(const std::string& path) {
  const auto status = input_status(path);
  return status && !S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode);
}

// Throws if two inputs are the same pipe or stdin is named twice, because the second would be
// empty, and if stdin is closed. A program calls this before it opens a file: that file could
// become stdin.
inline void check_pipes(const std::vector<std::string>& names) {
  std::map<std::pair<dev_t, ino_t>, std::string> pipes;
  for (const std::string& name : names) {
    const std::string path = input_path(name);
    const auto status = input_status(path);
    require(status || path != kStdin, "stdin is closed", "pass a file or a pipe");
    if (!status || (!S_ISFIFO(status->st_mode) && !S_ISSOCK(status->st_mode) && path != kStdin)) {
      continue;
    }
    const auto [pipe, is_new] = pipes.try_emplace({status->st_dev, status->st_ino}, path);
    if (is_new) continue;
    fail(pipe->second == path ? path + " is named twice"
                              : pipe->second + " and " + path + " are the same pipe",
         "name it only once: a pipe can be read only once");
  }
}

// Opens a new file without a name. It disappears when its last descriptor and map are closed, also
// if the process is killed.
inline FileDescriptor unnamed_file(const std::filesystem::path& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  std::string name = (directory / ".tmp-XXXXXX").string();  // not every file system has O_TMPFILE
  fd = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) fail_file("create a temporary file in", directory, errno);
  if (::unlink(name.c_str()) != 0) fail_file("remove", name, errno);
  return fd;
}

class InputFile {
 public:
  InputFile() = default;

  // Maps a file, or reads a pipe to its end and maps a copy in `directory`, which is reported on
  // stderr. Throws if the path cannot be read or the copy cannot be written.
  InputFile(std::string path, const std::filesystem::path& directory)
      : path_(std::move(path)), is_pipe_(llmc::is_pipe(path_)) {
    const FileDescriptor fd = open();
    if (!is_pipe_) {
      map_ = MappedFile(fd, path_);
      time_ = modification_time();
      return;
    }
    Notice::print("copying the pipe " + path_ + " to an unnamed file in " + directory.string());
    const FileDescriptor copy = unnamed_file(directory);
    const std::string name = "a copy of " + path_ + " in " + directory.string();
    for_each_piece(fd, path_, [&](std::span<const std::byte> piece) {
      write_all(copy, piece, name);
      pipe_checksum_.add(piece);
    });
    map_ = MappedFile(copy, name);
  }

  const std::string& path() const { return path_; }
  bool is_pipe() const { return is_pipe_; }
  std::span<const std::byte> bytes() const { return map_.bytes(); }

  // Checksum of all bytes. A file is read again.
  std::uint64_t checksum() const {
    return is_pipe_ ? pipe_checksum_.value() : checksum_of_file(path_);
  }

  // Throws if the modification time of a file has changed since the file was opened: it was written
  // or replaced. The copy of a pipe cannot change.
  void check_unchanged() const {
    if (is_pipe_) return;
    require(modification_time() == time_, path_ + " was changed while it was read",
            "start again with " + quantity("overwriting"));
  }

 private:
  // If stdin is a pipe, its path cannot always be opened: another user may own the pipe, and
  // sockets have no path.
  FileDescriptor open() const {
    if (!is_pipe_ || path_ != kStdin) return open_for_reading(path_);
    FileDescriptor fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd) fail_file("open", path_, errno);
    refuse_device(fd, path_);
    return fd;
  }

  std::filesystem::file_time_type modification_time() const {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path_, error);
    if (error) fail_file("examine", path_, error.value());
    return time;
  }

  std::string path_;
  bool is_pipe_ = false;
  MappedFile map_;
  std::filesystem::file_time_type time_;  // last modification of a file
  Checksum pipe_checksum_;
};

}  // namespace llmc
