#include "llmc/base/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cfenv>
#include <cstdio>
#include <iostream>

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

void print_text(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) fail_stdout();
}

void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_stdout();
}

}  // namespace llmc
