#include "llmc/io/data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/io/data/compressed_file.h"

namespace llmc {

namespace {

// The status of an input, or nothing if there is no such input.
std::optional<struct stat> input_status(const std::string& path) {
  struct stat status {};
  const bool is_stdin = path == kStdin;
  const int result = is_stdin ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status);
  return result == 0 ? std::optional(status) : std::nullopt;
}

}  // namespace

bool is_pipe(const std::string& path) {
  const auto status = input_status(path);
  return status && !S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode);
}

void check_pipes(const std::vector<std::string>& names) {
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

FileDescriptor unnamed_file(const std::filesystem::path& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  std::string name = (directory / ".tmp-XXXXXX").string();  // not every file system has O_TMPFILE
  fd = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) fail_file("create a temporary file in", directory, errno);
  if (::unlink(name.c_str()) != 0) fail_file("remove", name, errno);
  return fd;
}

InputFile::InputFile(std::string path, const std::filesystem::path& directory)
    : path_(std::move(path)), is_pipe_(llmc::is_pipe(path_)) {
  const FileDescriptor fd = open();
  if (is_pipe_) {
    copy_pipe(fd, directory);
  } else {
    map_ = MappedFile(fd, path_);
    time_ = modification_time();
  }
  if (compression_of(map_.bytes()) == Compression::none) return;
  Notice::print("unpacking " + path_ + " to an unnamed file in " + directory.string());
  map_ = decompressed_map(map_.bytes(), path_, directory);
}

void InputFile::copy_pipe(const FileDescriptor& fd, const std::filesystem::path& directory) {
  Notice::print("copying the pipe " + path_ + " to an unnamed file in " + directory.string());
  const FileDescriptor copy = unnamed_file(directory);
  const std::string name = "a copy of " + path_ + " in " + directory.string();
  for_each_piece(fd, path_, [&](std::span<const std::byte> piece) {
    write_all(copy, piece, name);
    pipe_checksum_.add(piece);
  });
  map_ = MappedFile(copy, name);
}

void InputFile::check_unchanged() const {
  if (is_pipe_) return;
  require(modification_time() == time_, path_ + " was changed while it was read",
          "start again with " + quantity("overwriting"));
}

FileDescriptor InputFile::open() const {
  if (!is_pipe_ || path_ != kStdin) return open_for_reading(path_);
  FileDescriptor fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!fd) fail_file("open", path_, errno);
  refuse_device(fd, path_);
  return fd;
}

std::filesystem::file_time_type InputFile::modification_time() const {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path_, error);
  if (error) fail_file("examine", path_, error.value());
  return time;
}

}  // namespace llmc
