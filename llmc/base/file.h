// Reads files (whole or mapped) and writes them atomically: a reader sees the old content or the
// new content, never a part. Bytes go to a temporary name next to the file and reach the disk
// (fsync) before the file is renamed. Every failure is an `Error` with the path and the system's
// reason.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"

namespace llmc {

// ---- errors --------------------------------------------------------------------------------

std::string system_reason(int error);

// Throws "cannot VERB PATH: REASON"; `error` is the errno of the call that failed.
[[noreturn]] void fail_file(const std::string& verb, const std::filesystem::path& path, int error,
                            std::source_location location = std::source_location::current());

// Text from a file, made safe for a message: control characters and bytes that are not ASCII become
// '?', and a long text is cut.
std::string printable(std::string_view text);

// Whether a file of this name stays inside its directory, and the name has no control characters.
bool is_plain_file_name(std::string_view name);

// "123 bytes", "4.70 GB" (powers of 1000, as disks are sold).
std::string byte_text(std::int64_t bytes);

// ---- reading -------------------------------------------------------------------------------

// Throws if the content of a file is only the text that Git LFS stores in place of a large file.
void refuse_lfs_pointer(std::string_view content, const std::filesystem::path& path);

// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // For callers that must detect a failed close, which on a network disk is a failed write.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct stat status_of(const FileDescriptor& fd, const std::filesystem::path& path);

// Throws if a descriptor is a device such as /dev/zero, whose bytes may never end. /dev/null is
// allowed.
void refuse_device(const FileDescriptor& fd, const std::filesystem::path& path);

// Opens a file or a pipe. Devices are refused, except /dev/null.
FileDescriptor open_for_reading(const std::filesystem::path& path);

// Reads up to `bytes.size()` bytes at the descriptor's position. Returns their number; 0 at the end
// of the file.
std::size_t read_some(const FileDescriptor& fd, std::span<std::byte> bytes,
                      const std::filesystem::path& path);

// Calls `each(std::span<const std::byte>)` for consecutive pieces of a file or pipe, from the
// descriptor's position on. Slower than a map, but a failing disk causes an `Error` instead of a
// SIGBUS.
template <class Each>
void for_each_piece(const FileDescriptor& fd, const std::filesystem::path& path, Each&& each) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  const std::span bytes(buffer.get(), kPiece);
  while (const std::size_t n = read_some(fd, bytes, path)) each(bytes.first(n));
}

template <class Each>
void for_each_piece(const std::filesystem::path& path, Each&& each) {
  for_each_piece(open_for_reading(path), path, each);
}

std::uint64_t checksum_of_file(const std::filesystem::path& path);

// Throws if the file is a Git LFS pointer; so does MappedFile.
std::string read_file(const std::filesystem::path& path);

// A regular file mapped into memory; the kernel reads its pages when they are touched. The file
// must keep its length while it is mapped. Files written with AtomicFile do: a new file takes the
// name, and the old one exists until it is unmapped.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path)
      : MappedFile(open_for_reading(path), path) {}
  // Maps an open file, which errors call `path`. The map stays valid if `fd` is closed.
  MappedFile(const FileDescriptor& fd, const std::filesystem::path& path);
  // Maps the bytes [begin, begin + size) of an open file, which the file must have.
  MappedFile(const FileDescriptor& fd, const std::filesystem::path& path, std::int64_t begin,
             std::int64_t size);
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        skipped_(std::exchange(other.skipped_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_ + skipped_, size_ - skipped_}; }

 private:
  const std::byte* data_ = nullptr;  // of the map, which begins at a page
  std::size_t size_ = 0;             // of the map
  std::size_t skipped_ = 0;          // bytes of the map before those that are wanted
};

// ---- writing -------------------------------------------------------------------------------

void write_all(const FileDescriptor& fd, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

void sync_file(const FileDescriptor& fd, const std::filesystem::path& path);

// Makes the names in a directory durable. File systems that do not support this return EINVAL,
// which is no error here.
void sync_directory(const std::filesystem::path& path);

// Creates the directory and its missing parents.
void make_directory(const std::filesystem::path& path);

// Whether a file or directory of this name exists. Throws if that cannot be determined.
bool path_exists(const std::filesystem::path& path);

// The directories in `root`, sorted; empty if `root` does not exist. Throws if it cannot be read.
std::vector<std::filesystem::path> directories_in(const std::filesystem::path& root);

// The directory that holds `path`; "." for a bare name.
inline std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

inline constexpr std::string_view kTemporaryMark = ".tmp-";

// "NAME.tmp-1a2b3c4d", made from the time and the process id. A file of that name can exist
// already, so the caller must create it exclusively and retry.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// Whether `name` (without directory) has the form that temporary_name returns.
bool is_temporary_name(std::string_view name);

// A file that is written in order under a temporary name until `commit` renames it. Without a
// commit the temporary file is removed, and an existing file of that name stays. A symbolic link
// stays a link: the file that it points to is replaced.
class AtomicFile {
 public:
  // Throws if the file cannot be written at this path.
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  ~AtomicFile();

  // Allocates the disk space now, so that a full disk is detected before the work of filling it.
  // All reserved bytes must then be written. It is no error if the file system cannot reserve.
  void reserve(std::int64_t bytes);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Overwrites the start of the file, which must have been written before: for a header that counts
  // what follows. Afterwards `checksum` is no longer that of the content.
  void rewrite_start(std::span<const std::byte> bytes);

  // Sets the name that `commit` will use. It must be in the same directory.
  void rename(const std::filesystem::path& path) { path_ = path; }

  // Syncs the bytes, renames the file, and syncs the directory. A caller that commits many files in
  // one directory and syncs it at the end can skip the last part.
  void commit(bool sync_parent = true);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }                   // bytes written so far
  std::uint64_t checksum() const { return checksum_.value(); }  // checksum of these bytes

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  FileDescriptor fd_;
  Checksum checksum_;
  std::int64_t size_ = 0;
  std::int64_t reserved_ = 0;
};

void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace llmc
