#include "llmc/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/similar_path.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

// ---- errors --------------------------------------------------------------------------------

std::string system_reason(int error) {
  return std::generic_category().message(error);
}

void fail_file(const std::string& verb, const std::filesystem::path& path, int error,
               std::source_location location) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = "free some space, or write to another disk";
  if (error == EFBIG)
    hint = "raise the file size limit (ulimit -f), or write to a file system for larger files";
  const bool is_missing = error == ENOENT && (verb == "open" || verb == "examine");
  fail("cannot " + verb + " " + path.string() + ": " + system_reason(error) +
           (is_missing ? did_you_mean_path(path) : ""),
       hint, location);
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxLength = 100;
  std::string out(text.substr(0, kMaxLength));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  if (text.size() > kMaxLength) out += "...";
  return out;
}

bool is_plain_file_name(std::string_view name) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         std::none_of(name.begin(), name.end(), control);
}

std::string byte_text(std::int64_t bytes) {
  if (bytes < 10'000) return std::to_string(bytes) + " bytes";
  const char* unit = "kB";
  double value = static_cast<double>(bytes) / 1e3;
  for (const char* larger : {"MB", "GB", "TB"}) {
    if (value < 1000.0) break;
    value /= 1e3;
    unit = larger;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, unit);
  return text;
}

// ---- reading -------------------------------------------------------------------------------

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

struct stat status_of(const FileDescriptor& fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_file("examine", path, errno);
  return status;
}

void refuse_device(const FileDescriptor& fd, const std::filesystem::path& path) {
  const struct stat status = status_of(fd, path);
  const bool device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  struct stat null {};
  if (device && (::stat("/dev/null", &null) != 0 || null.st_rdev != status.st_rdev)) {
    fail(path.string() + " is a device", "pass a file or a pipe");
  }
}

FileDescriptor open_for_reading(const std::filesystem::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) fail_file("open", path, errno);
  refuse_device(fd, path);
  return fd;
}

std::size_t read_some(const FileDescriptor& fd, std::span<std::byte> bytes,
                      const std::filesystem::path& path) {
  for (;;) {
    const ssize_t n = ::read(fd.get(), bytes.data(), bytes.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) fail_file("read", path, errno);
  }
}

std::uint64_t checksum_of_file(const std::filesystem::path& path) {
  Checksum sum;
  for_each_piece(path, [&](std::span<const std::byte> piece) { sum.add(piece); });
  return sum.value();
}

void refuse_lfs_pointer(std::string_view content, const std::filesystem::path& path) {
  constexpr std::size_t kMaxPointer = 1024;  // of the format
  constexpr std::string_view kBeginning = "version https://git-lfs.github.com/spec/";
  if (content.size() >= kMaxPointer || !content.starts_with(kBeginning)) return;
  fail(path.string() + " is a Git LFS pointer: the file itself has not been downloaded",
       "run `git lfs pull` in its repository, or download the file");
}

std::string read_file(const std::filesystem::path& path) {
  std::string text;
  for_each_piece(path, [&](std::span<const std::byte> piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  refuse_lfs_pointer(text, path);
  return text;
}

MappedFile::MappedFile(const FileDescriptor& fd, const std::filesystem::path& path) {
  const struct stat status = status_of(fd, path);
  require(S_ISREG(status.st_mode), path.string() + " is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap rejects a length of 0
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) fail_file("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
  refuse_lfs_pointer({static_cast<const char*>(data), size_}, path);
}

MappedFile::MappedFile(const FileDescriptor& fd, const std::filesystem::path& path,
                       std::int64_t begin, std::int64_t size) {
  if (size == 0) return;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE), first = begin / page * page;
  skipped_ = static_cast<std::size_t>(begin - first);
  size_ = static_cast<std::size_t>(size) + skipped_;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), first);
  if (data == MAP_FAILED) fail_file("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(skipped_, other.skipped_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

// ---- writing -------------------------------------------------------------------------------

void write_all(const FileDescriptor& fd, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) fail_file("write", path, errno);
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void sync_file(const FileDescriptor& fd, const std::filesystem::path& path) {
  if (::fsync(fd.get()) != 0) fail_file("write to disk", path, errno);
}

void sync_directory(const std::filesystem::path& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail_file("open", path, errno);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_file("write to disk", path, errno);
}

void make_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error))
    error.assign(ENOTDIR, error.category());
  if (error) fail_file("create the directory", path, error.value());
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) fail_file("examine", path, error.value());
  return exists;
}

std::vector<std::filesystem::path> directories_in(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> directories;
  std::error_code error;
  std::filesystem::directory_iterator entry(root, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) directories.push_back(entry->path());
  }
  if (error && error.value() != ENOENT) fail_file("read the directory", root, error.value());
  std::sort(directories.begin(), directories.end());
  return directories;
}

namespace {

constexpr std::size_t kTemporaryDigits = 8;

}  // namespace

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string seed = std::to_string(now) + '/' + std::to_string(::getpid());
  std::filesystem::path name = path;
  name +=
      std::string(kTemporaryMark) + checksum_text(checksum_of(seed)).substr(16 - kTemporaryDigits);
  return name;
}

bool is_temporary_name(std::string_view name) {
  const std::size_t tail = kTemporaryMark.size() + kTemporaryDigits;
  if (name.size() <= tail) return false;
  const std::string_view end = name.substr(name.size() - tail);
  return end.starts_with(kTemporaryMark) &&
         end.substr(kTemporaryMark.size()).find_first_not_of("0123456789abcdef") == end.npos;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    path_ = std::filesystem::weakly_canonical(path, ignored);
  }
  const auto status = std::filesystem::status(path_, ignored);
  // A rename would replace a device such as /dev/null by a file.
  require(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status),
          "cannot write " + path.string() + ": it exists and is not a regular file");
  do {
    temporary_path_ = temporary_name(path_);
    UnfinishedFiles::create(temporary_path_, [this] {
      fd_ = FileDescriptor(
          ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      return static_cast<bool>(fd_);
    });
  } while (!fd_ && errno == EEXIST);
  if (!fd_) fail_file("write", path, errno);
}

AtomicFile::~AtomicFile() {
  if (!fd_) return;
  UnfinishedFiles::finish(temporary_path_, [this] { ::unlink(temporary_path_.c_str()); });
}

void AtomicFile::reserve(std::int64_t bytes) {
  reserved_ = bytes;
  if (bytes <= 0 || ::fallocate(fd_.get(), 0, 0, bytes) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
    fail_file("reserve " + byte_text(bytes) + " for", path_, errno);
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_all(fd_, bytes, path_);
  checksum_.add(bytes);
  size_ += static_cast<std::int64_t>(bytes.size());
}

void AtomicFile::rewrite_start(std::span<const std::byte> bytes) {
  require(static_cast<std::int64_t>(bytes.size()) <= size_,
          path_.string() + ": cannot rewrite more bytes than were written");
  for (off_t offset = 0; !bytes.empty();) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
    if (n < 0 && errno != EINTR) fail_file("write", path_, errno);
    if (n <= 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void AtomicFile::commit(bool sync_parent) {
  require(size_ >= reserved_, path_.string() + ": fewer bytes were written than reserved");
  sync_file(fd_, path_);
  UnfinishedFiles::finish(temporary_path_, [this] {
    if (::rename(temporary_path_.c_str(), path_.c_str()) != 0)
      fail_file("rename a temporary file to", path_, errno);
  });
  if (::close(fd_.release()) != 0) fail_file("close", path_, errno);
  if (sync_parent) sync_directory(parent_of(path_));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace llmc
