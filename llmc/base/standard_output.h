// Results of a program on stdout.
#pragma once

#include <string>

namespace llmc {

// Makes stdout and stderr that are closed (`>&-`) fail instead of taking the next file that the
// program opens, into which results and messages would go. Call it before any file is opened.
void reserve_standard_output();

// Whether stdout and stderr are the same file, pipe or terminal, so that a reader sees messages
// between results.
bool stdout_is_stderr();

// Throws the error of a result that is lost, for example because the disk is full. If the reader of
// a pipe has ended, as `head` does, the process ends silently as by SIGPIPE instead. `error`: errno
// of the failed write.
[[noreturn]] void fail_stdout(int error);

// Writes to stdout at once. Throws if that fails. Uses std::cout, which is silent on all ranks of a
// run but the first.
void print_text(const std::string& text);

// Throws if a part of what printf and fwrite wrote to stdout is lost. Call it after the last one.
void flush_stdout();

}  // namespace llmc
