// Results of a program on stdout.
#pragma once

#include <string>

#include "llmc/base/error.h"

namespace llmc {

// Makes stdout and stderr that are closed (`>&-`) fail instead of taking the next file that the
// program opens, into which results and messages would go. Call it before any file is opened.
void reserve_standard_output();

// Throws the error of a result that is lost, for example because the disk is full.
[[noreturn]] inline void fail_stdout() {
  fail("stdout cannot be written");
}

// Writes to stdout at once. Throws if that fails. Uses std::cout, which is silent on all ranks of a
// run but the first.
void print_text(const std::string& text);

// Throws if a part of what printf and fwrite wrote to stdout is lost. Call it after the last one.
void flush_stdout();

}  // namespace llmc
