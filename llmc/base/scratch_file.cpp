#include "llmc/base/scratch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

namespace {

constexpr const char* kPrefix = ".llmc-scratch-";

// Opens with O_DIRECT, or without it where that is not supported.
int open_direct(const std::filesystem::path& path, int flags, bool& is_direct) {
  is_direct = true;
  int fd = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0600);
  if (fd >= 0 || errno != EINVAL) return fd;
  is_direct = false;
  return ::open(path.c_str(), flags | O_CLOEXEC, 0600);
}

// Removes named files whose owner is not alive: an owner holds a lock on its file.
void remove_leftovers(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const FileDescriptor fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

// Calls move(done) until all `size` bytes are moved; it returns the bytes that it moved, or -1.
// Returns 0, or the error of the call that failed. A direct transfer resumes at a multiple of the
// alignment.
template <class Move>
int move_all(std::int64_t size, const Move& move) {
  for (std::int64_t done = 0; done < size;) {
    const std::int64_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    const std::int64_t end = done + moved;
    const std::int64_t next =
        end == size ? end : end / ScratchFile::kAlignment * ScratchFile::kAlignment;
    if (next <= done) return EIO;
    done = next;
  }
  return 0;
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& directory, std::int64_t bytes,
                         Removal removal)
    : directory_(directory), removal_(removal) {
  make_directory(directory);
  remove_leftovers(directory);
  create();
  try {
    reserve((bytes + kAlignment - 1) / kAlignment * kAlignment);
  } catch (...) {
    if (!name_.empty()) UnfinishedFiles::finish(name_, [&] { ::unlink(name_.c_str()); });
    throw;
  }
}

ScratchFile::~ScratchFile() {
  if (!name_.empty()) UnfinishedFiles::finish(name_, [&] { ::unlink(name_.c_str()); });
}

void ScratchFile::create() {
  if (removal_ == Removal::automatic && create_nameless()) return;
  create_named();
}

bool ScratchFile::create_nameless() {
  fd_ = FileDescriptor(open_direct(directory_, O_TMPFILE | O_RDWR, is_direct_));
  return static_cast<bool>(fd_);
}

void ScratchFile::create_named() {
  std::string name;
  struct stat status {};
  do {  // until no other process has taken the new file for a leftover before it is locked
    name = (directory_ / (std::string(kPrefix) + "XXXXXX")).string();
    UnfinishedFiles::create(name, [&] {
      fd_ = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
      return false;
    });
    if (!fd_) fail_file("create a file in", directory_, errno);
    if (::flock(fd_.get(), LOCK_EX) != 0) fail_file("lock", name, errno);
    if (::fstat(fd_.get(), &status) != 0) fail_file("read the status of", name, errno);
  } while (status.st_nlink == 0);
  is_direct_ = ::fcntl(fd_.get(), F_SETFL, O_RDWR | O_DIRECT) == 0;
  if (removal_ == Removal::automatic && ::unlink(name.c_str()) == 0) return;
  name_ = name;
  UnfinishedFiles::create(name_, [] { return true; });
}

void ScratchFile::reserve(std::int64_t bytes) {
  int error = bytes == 0 ? 0 : ::posix_fallocate(fd_.get(), 0, bytes);
  // A file system without reservation can still be full later.
  if (error == EOPNOTSUPP || error == EINVAL) {
    error = ::ftruncate(fd_.get(), bytes) == 0 ? 0 : errno;
  }
  if (error == 0) return;
  struct statvfs status {};
  std::string room;
  if (::statvfs(directory_.c_str(), &status) == 0) {
    const auto free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
    room = ", " + byte_text(static_cast<std::int64_t>(std::min(free, 9e18))) + " are free";
  }
  fail("cannot reserve " + byte_text(bytes) + " in " + printable(directory_.string()) + room +
           ": " + system_reason(error),
       "use a directory on a disk with more room");
}

void ScratchFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  require(offset % kAlignment == 0 && std::ssize(bytes) % kAlignment == 0,
          "a transfer of a scratch file is not aligned");
  const int error = move_all(std::ssize(bytes), [&](std::int64_t done) {
    return ::pread(fd_.get(), bytes.data() + done, bytes.size() - static_cast<std::size_t>(done),
                   offset + done);
  });
  if (error != 0) fail_transfer("read", offset, error);
}

void ScratchFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  require(offset % kAlignment == 0 && std::ssize(bytes) % kAlignment == 0,
          "a transfer of a scratch file is not aligned");
  const int error = move_all(std::ssize(bytes), [&](std::int64_t done) {
    return ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - static_cast<std::size_t>(done),
                    offset + done);
  });
  if (error != 0) fail_transfer("write", offset, error);
}

void ScratchFile::fail_transfer(const char* verb, std::int64_t offset, int error) const {
  const std::string file = name_.empty() ? "the scratch file in " + printable(directory_.string())
                                         : printable(name_.string());
  fail(std::string("cannot ") + verb + " " + file + " at byte " + std::to_string(offset) + ": " +
           system_reason(error),
       "check the disk; the last checkpoint is not affected");
}

}  // namespace llmc
