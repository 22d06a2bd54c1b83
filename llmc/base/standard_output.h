// Results of a program on stdout.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

// Makes stdout and stderr that are closed (`>&-`) fail instead of taking the next file that the
// program opens, into which results and messages would go. Call it before any file is opened.
inline void reserve_standard_output() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int unwritable = ::open("/dev/null", O_RDONLY);
    if (unwritable < 0 || unwritable == stream) continue;
    ::dup2(unwritable, stream);
    ::close(unwritable);
  }
}

// Throws the error of a result that is lost, for example because the disk is full.
[[noreturn]] inline void fail_stdout() {
  fail("stdout cannot be written");
}

// Writes to stdout at once. Throws if that fails. Uses std::cout, which is silent on all ranks of a
// run but the first.
inline void print_text(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) fail_stdout();
}

// Throws if a part of what printf and fwrite wrote to stdout is lost. Call it after the last one.
inline void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_stdout();
}

}  // namespace llmc
