// The inputs of a program: files, and pipes, which are first copied to an unnamed file. Both are
// mapped, so that they can be read several times. Compressed inputs are unpacked to an unnamed file
// (compressed_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"

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

// Whether the bytes of an input can be read only once: those of a pipe, a socket or a device.
bool is_pipe(const std::string& path);

// Throws if two inputs are the same pipe or stdin is named twice, because the second would be
// empty, and if stdin is closed. A program calls this before it opens a file: that file could
// become stdin.
void check_pipes(const std::vector<std::string>& names);

// Opens a new file without a name. It disappears when its last descriptor and map are closed, also
// if the process is killed.
FileDescriptor unnamed_file(const std::filesystem::path& directory);

class InputFile {
 public:
  InputFile() = default;

  // Maps a file, or reads a pipe to its end and maps a copy in `directory`, which is reported on
  // stderr. Throws if the path cannot be read or the copy cannot be written.
  InputFile(std::string path, const std::filesystem::path& directory);

  const std::string& path() const { return path_; }
  bool is_pipe() const { return is_pipe_; }
  // The bytes, unpacked.
  std::span<const std::byte> bytes() const { return map_.bytes(); }

  // Checksum of all bytes, before they are unpacked. A file is read again.
  std::uint64_t checksum() const {
    return is_pipe_ ? pipe_checksum_.value() : checksum_of_file(path_);
  }

  // Throws if the modification time of a file has changed since the file was opened: it was written
  // or replaced. The copy of a pipe cannot change.
  void check_unchanged() const;

 private:
  void copy_pipe(const FileDescriptor& fd, const std::filesystem::path& directory);

  // If stdin is a pipe, its path cannot always be opened: another user may own the pipe, and
  // sockets have no path.
  FileDescriptor open() const;

  std::filesystem::file_time_type modification_time() const;

  std::string path_;
  bool is_pipe_ = false;
  MappedFile map_;
  std::filesystem::file_time_type time_;  // last modification of a file
  Checksum pipe_checksum_;
};

}  // namespace llmc
