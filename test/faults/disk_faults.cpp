// Library for LD_PRELOAD that injects a fault at the n-th call that is about to change a file whose
// path contains a given text. Every change goes through one of the calls below, so over all n these
// are all moments at which a kill or a full disk can occur. Environment variables:
//
//   FAULT_IN    the text; relative paths are used as they are, descriptors by their full path
//   FAULT_AT    n, counted from 1; in the style of "1 3", several calls have the fault; "all"
//   FAULT_DO    kill: SIGKILL before the call.
//               tear: SIGKILL after half of a write, or before any other call.
//               full: the call and all later calls that take space fail with ENOSPC.
//               once: the call fails with ENOSPC if it takes space.
//               term: SIGTERM after the call.
//               EIO, ENOSPC, EDQUOT, EINTR, EINVAL, EOPNOTSUPP: the call fails with this error.
//               short: a transfer moves half of its bytes; other calls have no fault.
//               odd: as short, but the number of bytes is odd. The bytes after them are moved too,
//               because a direct transfer of an odd number is impossible.
//               empty: a transfer moves no bytes, as at the end of a file.
//               slow: the call takes 20 ms longer.
//               touch: the file is marked as changed after a transfer; other calls have no fault.
//   FAULT_CALLS names of calls, as in "pread pwrite": only these are counted. These can be calls
//               that only read (read, pread, preadv), positioned writes (pwrite, pwritev),
//               posix_fallocate, flock and opening a file without a name (O_TMPFILE), none of
//               which is counted without this variable.
//   FAULT_LIST  a file to which the name and path of each matching call are appended
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace {

// The C library's own function of this name.
template <class Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<std::size_t>(n));
}

std::string path_at(int directory, const char* path) {
  return directory == AT_FDCWD || path[0] == '/' ? path : path_of(directory) + "/" + path;
}

void append_to_list(const char* call, const std::string& path) {
  static const std::string file = setting("FAULT_LIST");
  if (file.empty()) return;
  const int fd =
      real("openat", ::openat)(AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  const std::string line = std::string(call) + " " + path + "\n";
  (void)!real("write", ::write)(fd, line.data(), line.size());
  close(fd);
}

// Sends a signal to the process and waits until its signal thread has received it.
void send_signal(int signal) {
  kill(getpid(), signal);
  sigset_t pending;
  do {
    usleep(1000);
    sigpending(&pending);
  } while (sigismember(&pending, signal) == 1);
}

// Sends SIGTERM and waits until it is answered. An answer can take seconds, because a rank asks all
// others first. The thread receives one signal after the other; SIGURG has no effect in it.
void terminate() {
  send_signal(SIGTERM);
  send_signal(SIGURG);
}

enum class Fault { none, tear, fail, part, odd, empty, slow, term, touch };

// The error of FAULT_DO, if it is the name of one.
std::optional<int> error_named(const std::string& name) {
  constexpr struct {
    const char* name;
    int number;
  } kErrors[] = {{"EIO", EIO},
                 {"ENOSPC", ENOSPC},
                 {"EDQUOT", EDQUOT},
                 {"EINVAL", EINVAL},
                 {"EOPNOTSUPP", EOPNOTSUPP},
                 {"EINTR", EINTR},
                 {"full", ENOSPC},
                 {"once", ENOSPC}};
  for (const auto& error : kErrors) {
    if (name == error.name) return error.number;
  }
  return std::nullopt;
}

int error_of_fault() {
  static const int error = error_named(setting("FAULT_DO")).value_or(0);
  return error;
}

bool has_word(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

// Whether FAULT_CALLS names the call. `is_default`: whether it is counted without FAULT_CALLS.
bool is_counted(const char* call, bool is_default) {
  static const std::string calls = setting("FAULT_CALLS");
  return calls.empty() ? is_default : has_word(calls, call);
}

// Counts a call that is about to use `path` and returns its fault; carries out `kill` itself.
Fault next_fault(const char* call, const std::string& path, bool takes_space,
                 bool is_default = true) {
  static std::atomic<long> num_calls{0};
  static const std::string path_part = setting("FAULT_IN"), action = setting("FAULT_DO");
  static const std::string fault_calls = setting("FAULT_AT");
  static const long first_fault = std::atol(fault_calls.c_str());
  if (path_part.empty() || path.find(path_part) == path.npos) return Fault::none;
  if (!is_counted(call, is_default)) return Fault::none;
  const long number = ++num_calls;
  append_to_list(call, path);
  if (action == "full")
    return first_fault > 0 && number >= first_fault && takes_space ? Fault::fail : Fault::none;
  if (fault_calls != "all" && !has_word(fault_calls, std::to_string(number))) return Fault::none;
  if (action == "once") return takes_space ? Fault::fail : Fault::none;
  if (action == "kill") raise(SIGKILL);
  if (error_of_fault() != 0) return Fault::fail;
  constexpr struct {
    const char* name;
    Fault fault;
  } kFaults[] = {{"tear", Fault::tear},   {"short", Fault::part}, {"odd", Fault::odd},
                 {"empty", Fault::empty}, {"slow", Fault::slow},  {"term", Fault::term},
                 {"touch", Fault::touch}};
  for (const auto& known : kFaults) {
    if (action == known.name) return known.fault;
  }
  return Fault::none;
}

// Makes a call that returns -1 on failure, with the fault that is due.
template <class Call>
auto with_fault(const char* name, const std::string& path, bool takes_space, Call&& call,
                bool is_default = true) {
  const Fault fault = next_fault(name, path, takes_space, is_default);
  if (fault == Fault::fail) {
    errno = error_of_fault();
    return static_cast<decltype(call())>(-1);
  }
  if (fault == Fault::tear) raise(SIGKILL);
  if (fault == Fault::slow) usleep(20'000);
  const auto result = call();
  if (fault == Fault::term) terminate();
  return result;
}

// Makes a transfer of `size` bytes, call(n) of which transfers the first n, with the fault that is
// due.
template <class Call>
ssize_t transfer(const char* name, int fd, size_t size, bool writes, bool is_default,
                 const Call& call) {
  if (!is_counted(name, is_default)) return call(size);
  switch (next_fault(name, path_of(fd), writes, is_default)) {
    case Fault::fail:
      errno = error_of_fault();
      return -1;
    case Fault::tear:
      (void)!call(size / 2);
      raise(SIGKILL);
      return -1;
    case Fault::part:
      return call(size / 2);
    case Fault::odd: {
      const ssize_t result = call(size);
      return result > 1 ? result / 2 | 1 : result;
    }
    case Fault::empty:
      return 0;
    case Fault::slow:
      usleep(20'000);
      return call(size);
    case Fault::term: {
      const ssize_t result = call(size);
      terminate();
      return result;
    }
    case Fault::touch: {
      const ssize_t result = call(size);
      futimens(fd, nullptr);
      return result;
    }
    default:
      return call(size);
  }
}

// The parts of memory that hold the first `size` bytes.
std::vector<iovec> first_bytes(const iovec* parts, int count, size_t size) {
  std::vector<iovec> first;
  for (int i = 0; i < count && size > 0; ++i) {
    first.push_back({parts[i].iov_base, parts[i].iov_len < size ? parts[i].iov_len : size});
    size -= first.back().iov_len;
  }
  return first;
}

size_t size_of(const iovec* parts, int count) {
  size_t size = 0;
  for (int i = 0; i < count; ++i) size += parts[i].iov_len;
  return size;
}

bool is_nameless(int flags) {
  return (flags & O_TMPFILE) == O_TMPFILE;
}

int open_at(const char* name, int directory, const char* path, int flags, mode_t mode) {
  const auto call = [&] { return real("openat", ::openat)(directory, path, flags, mode); };
  const bool creates = (flags & O_CREAT) != 0;
  if (!creates && !is_nameless(flags)) return call();
  return with_fault(name, path_at(directory, path), true, call, creates);
}

mode_t mode_of(int flags, va_list arguments) {
  const bool has_mode = (flags & O_CREAT) != 0 || is_nameless(flags);
  return has_mode ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  return transfer("write", fd, size, true, true,
                  [&](size_t n) { return real("write", ::write)(fd, bytes, n); });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return transfer("pwrite", fd, size, true, false,
                  [&](size_t n) { return real("pwrite", ::pwrite)(fd, bytes, n, offset); });
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  return transfer("pwritev", fd, size_of(parts, count), true, false, [&](size_t n) {
    const auto first = first_bytes(parts, count, n);
    return real("pwritev", ::pwritev)(fd, first.data(), static_cast<int>(first.size()), offset);
  });
}

ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) {
  return pwritev(fd, parts, count, offset);
}

ssize_t read(int fd, void* bytes, size_t size) {
  return transfer("read", fd, size, false, false,
                  [&](size_t n) { return real("read", ::read)(fd, bytes, n); });
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  return transfer("pread", fd, size, false, false,
                  [&](size_t n) { return real("pread", ::pread)(fd, bytes, n, offset); });
}

ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) {
  return pread(fd, bytes, size, offset);
}

ssize_t preadv(int fd, const iovec* parts, int count, off_t offset) {
  return transfer("preadv", fd, size_of(parts, count), false, false, [&](size_t n) {
    const auto first = first_bytes(parts, count, n);
    return real("preadv", ::preadv)(fd, first.data(), static_cast<int>(first.size()), offset);
  });
}

ssize_t preadv64(int fd, const iovec* parts, int count, off64_t offset) {
  return preadv(fd, parts, count, offset);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("openat", directory, path, flags, mode);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return with_fault("fallocate", path_of(fd), true,
                    [&] { return real("fallocate", ::fallocate)(fd, mode, offset, length); });
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  return fallocate(fd, mode, offset, length);
}

// Returns an error instead of setting errno.
int posix_fallocate(int fd, off_t offset, off_t length) {
  int error = 0;
  const int result = with_fault(
      "posix_fallocate", path_of(fd), true,
      [&] {
        error = real("posix_fallocate", ::posix_fallocate)(fd, offset, length);
        return error;
      },
      false);
  return result == -1 ? error_of_fault() : error;
}

int posix_fallocate64(int fd, off64_t offset, off64_t length) {
  return posix_fallocate(fd, offset, length);
}

int flock(int fd, int operation) noexcept {
  return with_fault(
      "flock", path_of(fd), false, [&] { return real("flock", ::flock)(fd, operation); }, false);
}

int ftruncate(int fd, off_t length) noexcept {
  return with_fault("ftruncate", path_of(fd), false,
                    [&] { return real("ftruncate", ::ftruncate)(fd, length); });
}

int fsync(int fd) {
  return with_fault("fsync", path_of(fd), true, [&] { return real("fsync", ::fsync)(fd); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return with_fault("mkdir", path, true, [&] { return real("mkdir", ::mkdir)(path, mode); });
}

int rename(const char* from, const char* to) noexcept {
  return with_fault("rename", to, true, [&] { return real("rename", ::rename)(from, to); });
}

int renameat2(int from_at, const char* from, int to_at, const char* to,
              unsigned int flags) noexcept {
  return with_fault("renameat2", path_at(to_at, to), true, [&] {
    return real("renameat2", ::renameat2)(from_at, from, to_at, to, flags);
  });
}

int unlink(const char* path) noexcept {
  return with_fault("unlink", path, false, [&] { return real("unlink", ::unlink)(path); });
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return with_fault("unlinkat", path_at(directory, path), false,
                    [&] { return real("unlinkat", ::unlinkat)(directory, path, flags); });
}

int rmdir(const char* path) noexcept {
  return with_fault("rmdir", path, false, [&] { return real("rmdir", ::rmdir)(path); });
}

}  // extern "C"
