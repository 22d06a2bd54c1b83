#include "llmc/base/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>
#include <system_error>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/random_bits.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

namespace {

constexpr std::string_view kNameStart = ".llmc-scratch-";

// ".llmc-scratch-0123456789abcdef", with random digits.
std::string random_name() {
  return std::string(kNameStart) + checksum_text(random_bits());
}

bool is_scratch_name(std::string_view name) {
  return name.size() == kNameStart.size() + checksum_text(0).size() &&
         name.starts_with(kNameStart) &&
         name.substr(kNameStart.size()).find_first_not_of("0123456789abcdef") == name.npos;
}

// Calls call() again as long as a signal interrupts it. Returns 0 or the error.
template <class Call>
int error_of(const Call& call) {
  for (;;) {
    if (call() == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// The owner of a named file has a lock on it, which ends with its process. A file system without
// locks (ENOLCK, ENOTSUP, ENOSYS) does not lock for the process that looks for leftovers either.
int lock(const FileDescriptor& fd, int operation) {
  return error_of([&] { return ::flock(fd.get(), operation); });
}

// Removes the named files without a live owner. Errors are ignored: the files of other users stay.
void remove_leftovers(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    if (!is_scratch_name(entry->path().filename().string())) continue;
    const FileDescriptor fd(
        ::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (lock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
  }
}

// Calls move(done), which transfers bytes from `done` on and returns their number or -1, until all
// `size` bytes are transferred. Returns 0 or the error; `done` is then the position of the failure.
// A transfer that ends early is continued at a multiple of `unit`, so its last bytes may be
// transferred again. The next attempt shows the reason for the early end.
template <class Move>
int transfer_all(std::int64_t& done, std::int64_t size, std::int64_t unit, const Move& move) {
  constexpr int kMaxAttempts = 8;  // without progress
  for (int attempts = 0; done < size;) {
    const std::int64_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EIO;  // the file ends too early
    const std::int64_t next = (done + moved) / unit * unit;
    attempts = next > done ? 0 : attempts + 1;
    if (attempts == kMaxAttempts) return EIO;
    done = next;
  }
  return 0;
}

std::string free_text(const std::filesystem::path& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) return "an unknown number of bytes is free";
  const double bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  return byte_text(static_cast<std::int64_t>(std::min(bytes, 9e18))) + " are free";
}

// Whether more bytes are needed than the file system has, even for root. False if unknown: some
// file systems report no blocks.
bool is_too_large(const FileDescriptor& fd, std::int64_t bytes) {
  struct statvfs status {};
  if (::fstatvfs(fd.get(), &status) != 0 || status.f_blocks == 0) return false;
  return static_cast<double>(bytes) >
         static_cast<double>(status.f_bfree) * static_cast<double>(status.f_frsize);
}

bool is_in_memory(const FileDescriptor& fd) {
  struct statfs status {};
  if (::fstatfs(fd.get(), &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

bool is_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

std::int64_t rounded_up(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = ScratchFile::kAlignment;
  require(bytes >= 0, "the size of a scratch file is negative");
  require(bytes <= std::numeric_limits<std::int64_t>::max() - kAlignment,
          "a scratch file is too large");
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// ---- construction --------------------------------------------------------------------------

ScratchFile::ScratchFile(const std::filesystem::path& directory, std::int64_t bytes,
                         Removal removal)
    : directory_(directory), size_(rounded_up(bytes)) {
  make_directory(directory);
  remove_leftovers(directory);
  try {
    create(removal);
    reserve();
    use_direct_transfers();
  } catch (...) {
    remove_name();
    throw;
  }
}

ScratchFile::~ScratchFile() {
  remove_name();
}

void ScratchFile::create(Removal removal) {
  if (removal == Removal::automatic) {
    fd_ = FileDescriptor(::open(directory_.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (fd_) return;
  }
  create_named(removal);
}

void ScratchFile::create_named(Removal removal) {
  std::filesystem::path path;
  struct stat status {};
  do {  // until a file is locked before another process removes it as a leftover
    path = directory_ / random_name();
    int error = 0;
    UnfinishedFiles::create(path, [&] {
      fd_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      error = errno;
      return static_cast<bool>(fd_);
    });
    if (!fd_ && error == EEXIST) continue;
    if (!fd_) fail_file("create a file in", directory_, error);
    path_ = path;
    lock(fd_, LOCK_EX);
    status = status_of(fd_, path);
    if (removal == Removal::automatic || status.st_nlink == 0) {
      if (::unlink(path.c_str()) == 0 || errno == ENOENT) {
        UnfinishedFiles::finish(path, [] {});
        path_.clear();
      }
    }
  } while (!fd_ || status.st_nlink == 0);
}

void ScratchFile::remove_name() noexcept {
  if (path_.empty()) return;
  UnfinishedFiles::finish(path_, [this] { ::unlink(path_.c_str()); });
  path_.clear();
}

// ---- reservation ---------------------------------------------------------------------------

// fallocate and not posix_fallocate: the C library replaces the latter by writes of single bytes,
// which is slow, and which overlaps with the zeros below.
void ScratchFile::reserve() {
  if (size_ == 0) return;
  if (is_too_large(fd_, size_)) fail_reservation(ENOSPC);
  int error = error_of([this] { return ::fallocate(fd_.get(), 0, 0, size_); });
  if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) error = fill_with_zeros();
  if (error != 0) fail_reservation(error);
}

int ScratchFile::fill_with_zeros() const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const AlignedBuffer zeros(std::min(kPiece, size_));
  std::ranges::fill(zeros.bytes(), std::byte{0});
  for (std::int64_t position = 0; position < size_;) {
    const std::int64_t begin = position;
    const int error = try_write(position, zeros.bytes(0, std::min(kPiece, size_ - begin)));
    if (error != 0) return error;
  }
  // A network file system reports a full disk only here.
  return error_of([this] { return ::fsync(fd_.get()); });
}

void ScratchFile::fail_reservation(int error) const {
  fail("cannot reserve " + byte_text(size_) + " in " + printable(directory_.string()) + ", where " +
           free_text(directory_) + ": " + system_reason(error),
       error == EFBIG
           ? "raise the file size limit (ulimit -f), or use a file system for larger files"
           : "free some space, or use a directory on another disk");
}

// ---- transfers -----------------------------------------------------------------------------

// Kernels accept O_DIRECT on a tmpfs from version 6.6 on, without effect. Other file systems accept
// it and reject the first transfer, for example if their blocks are larger than kAlignment.
void ScratchFile::use_direct_transfers() {
  if (size_ == 0 || is_in_memory(fd_)) return;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT) != 0) return;
  const AlignedBuffer page(kAlignment);
  std::ranges::fill(page.bytes(), std::byte{0});
  is_direct_ = true;
  std::int64_t position = 0;
  const char* verb = "write";
  int error = try_write(position, page.bytes());
  if (error == 0) {
    verb = "read";
    position = 0;
    error = try_read(position, page.bytes());
  }
  if (error == 0) return;
  is_direct_ = false;
  if (error != EINVAL || ::fcntl(fd_.get(), F_SETFL, flags) != 0) {
    fail_transfer(verb, position, error);
  }
}

std::string ScratchFile::notice() const {
  if (is_direct_) return "";
  const std::string directory = printable(directory_.string());
  return is_in_memory(fd_) ? directory + " is in memory: what is offloaded to it takes host memory"
                           : directory +
                                 " does not support direct transfers (O_DIRECT): they pass through "
                                 "the page cache, which takes host memory";
}

void ScratchFile::check_transfer(std::int64_t offset, std::span<const std::byte> bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto size = static_cast<std::int64_t>(bytes.size());
  require(offset % kAlignment == 0 && size % kAlignment == 0 && address % kAlignment == 0,
          "a transfer of a scratch file is not aligned: offset, size and address must be multiples "
          "of 4096");
  require(0 <= offset && size <= size_ && offset <= size_ - size,
          "a transfer is outside its scratch file");
}

int ScratchFile::try_read(std::int64_t& position, std::span<std::byte> bytes) const {
  const std::int64_t begin = position;
  std::int64_t done = 0;
  const int error = transfer_all(done, std::ssize(bytes), unit(), [&](std::int64_t first) {
    const auto rest = bytes.subspan(static_cast<std::size_t>(first));
    return ::pread(fd_.get(), rest.data(), rest.size(), begin + first);
  });
  position = begin + done;
  return error;
}

int ScratchFile::try_write(std::int64_t& position, std::span<const std::byte> bytes) const {
  const std::int64_t begin = position;
  std::int64_t done = 0;
  const int error = transfer_all(done, std::ssize(bytes), unit(), [&](std::int64_t first) {
    const auto rest = bytes.subspan(static_cast<std::size_t>(first));
    return ::pwrite(fd_.get(), rest.data(), rest.size(), begin + first);
  });
  position = begin + done;
  return error;
}

void ScratchFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  check_transfer(offset, bytes);
  const int error = try_read(offset, bytes);
  if (error != 0) fail_transfer("read", offset, error);
}

void ScratchFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  check_transfer(offset, bytes);
  const int error = try_write(offset, bytes);
  if (error != 0) fail_transfer("write", offset, error);
}

void ScratchFile::fail_transfer(const char* verb, std::int64_t position, int error) const {
  const std::string file = path_.empty() ? "the scratch file in " + printable(directory_.string())
                                         : printable(path_.string());
  const char* hint = "";
  if (is_full(error)) hint = "free some space, or use a directory on another disk";
  if (error == EIO) hint = "check the disk, or use a directory on another one";
  fail(std::string("cannot ") + verb + " " + file + " at byte " + std::to_string(position) + ": " +
           system_reason(error),
       hint);
}

}  // namespace llmc
