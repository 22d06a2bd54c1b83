// Reports of faults that end the program, with the thread of the kernel and a stack trace.
#pragma once

#include <string>

namespace llmc::host {

// Prints `what`, the calling thread of a block if it is in a kernel, and a stack trace. Exits
// with 1.
[[noreturn]] void report_and_exit(std::string what);

}  // namespace llmc::host
