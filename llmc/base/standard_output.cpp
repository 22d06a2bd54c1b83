#include "llmc/base/standard_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "llmc/base/error.h"
#include "llmc/base/signal_thread.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

void reserve_standard_output() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int unwritable = ::open("/dev/null", O_RDONLY);
    if (unwritable < 0 || unwritable == stream) continue;
    ::dup2(unwritable, stream);
    ::close(unwritable);
  }
}

bool stdout_is_stderr() {
  struct stat out {
  }, error{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
         out.st_dev == error.st_dev && out.st_ino == error.st_ino;
}

void fail_stdout(int error) {
  if (error == EPIPE) {
    UnfinishedFiles::remove_all();
    SignalThread::end_process(SIGPIPE);
  }
  fail("stdout cannot be written");
}

void print_text(const std::string& text) {
  errno = 0;
  std::cout << text << std::flush;
  if (!std::cout) fail_stdout(errno);
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_stdout(errno);
}

}  // namespace llmc
