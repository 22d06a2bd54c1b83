// Results of a program on stdout.
#pragma once

#include <cstdio>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

// Writes to stdout at once. Throws if that fails.
inline void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail("stdout cannot be written");
}

}  // namespace llmc
