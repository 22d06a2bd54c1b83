// Library for LD_PRELOAD that injects a fault at the n-th call that is about to change a file whose
// path contains a given text. Every change goes through one of the calls below, so over all n these
// are all moments at which a kill or a full disk can occur. Environment variables:
//
//   FAULT_IN    the text; relative paths are used as they are, descriptors by their full path
//   FAULT_AT    n, counted from 1
//   FAULT_DO    kill: SIGKILL before the call.
//               tear: SIGKILL after half of a write, or before any other call.
//               full: the call and all later calls that take space fail with ENOSPC.
//               once: the call fails with ENOSPC if it takes space.
//               term: SIGTERM after the call.
//   FAULT_LIST  a file to which the name and path of each matching call are appended
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

// Sends SIGTERM to the process and waits until its signal thread has received it.
void terminate() {
  kill(getpid(), SIGTERM);
  sigset_t pending;
  do {
    usleep(20'000);  // also the time to record the signal
    sigpending(&pending);
  } while (sigismember(&pending, SIGTERM) == 1);
}

enum class Fault { none, kill, tear, full, term };

// Counts a call that is about to change `path` and returns its fault; carries out `kill` itself.
Fault next_fault(const char* call, const std::string& path, bool takes_space) {
  static std::atomic<long> num_calls{0};
  static const std::string path_part = setting("FAULT_IN"), action = setting("FAULT_DO");
  static const long fault_call = std::atol(setting("FAULT_AT").c_str());
  if (path_part.empty() || path.find(path_part) == path.npos) return Fault::none;
  const long number = ++num_calls;
  append_to_list(call, path);
  if (action == "full")
    return fault_call > 0 && number >= fault_call && takes_space ? Fault::full : Fault::none;
  if (number != fault_call) return Fault::none;
  if (action == "once") return takes_space ? Fault::full : Fault::none;
  if (action == "kill") raise(SIGKILL);
  return action == "tear" ? Fault::tear : action == "term" ? Fault::term : Fault::none;
}

// Makes a call that returns -1 on failure, with the fault that is due.
template <class Call>
auto with_fault(const char* name, const std::string& path, bool takes_space, Call&& call) {
  const Fault fault = next_fault(name, path, takes_space);
  if (fault == Fault::full) {
    errno = ENOSPC;
    return static_cast<decltype(call())>(-1);
  }
  if (fault == Fault::tear) raise(SIGKILL);
  const auto result = call();
  if (fault == Fault::term) terminate();
  return result;
}

int open_at(const char* name, int directory, const char* path, int flags, mode_t mode) {
  const auto call = [&] { return real("openat", ::openat)(directory, path, flags, mode); };
  if ((flags & O_CREAT) == 0) return call();
  return with_fault(name, path_at(directory, path), true, call);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  const auto call = [&](size_t n) { return real("write", ::write)(fd, bytes, n); };
  const Fault fault = next_fault("write", path_of(fd), true);
  if (fault == Fault::full) {
    errno = ENOSPC;
    return -1;
  }
  if (fault == Fault::tear) {
    (void)!call(size / 2);
    raise(SIGKILL);
  }
  const ssize_t result = call(size);
  if (fault == Fault::term) terminate();
  return result;
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

// Returns an error instead of setting errno.
int posix_fallocate(int fd, off_t offset, off_t length) {
  const int failed = with_fault("posix_fallocate", path_of(fd), true, [&] {
    const int error = real("posix_fallocate", ::posix_fallocate)(fd, offset, length);
    errno = error;
    return error == 0 ? 0 : -1;
  });
  return failed == 0 ? 0 : errno;
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return with_fault("pwrite", path_of(fd), true,
                    [&] { return real("pwrite", ::pwrite)(fd, bytes, size, offset); });
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
