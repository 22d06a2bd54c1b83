// Results of a program on stdout.
#pragma once

#include <cstdio>
#include <iostream>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

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
