// Results of a program on stdout.
#pragma once

#include <iostream>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

// Writes to stdout at once. Throws if that fails. Uses std::cout, which is silent on all ranks of a
// run but the first.
inline void print_text(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) fail("stdout cannot be written");
}

}  // namespace llmc
