#include "llmc/device/host/fatal_report.h"

#include <execinfo.h>
#include <unistd.h>

#include "llmc/device/host/block.h"
#include "llmc/device/host/sanitizer.h"

namespace llmc::host {

namespace {

void print_stack_trace() {
  if (kSanitized) return sanitizer_print_stack_trace();
  void* frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
}

}  // namespace

void report_and_exit(std::string what) {
  if (Block::thread() != nullptr) {
    const Coordinates at = Block::current()->coordinates();
    what += " in thread " + std::to_string(Block::thread()->index) + " of block (" +
            std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
  }
  what += "\n";
  if (write(STDERR_FILENO, what.data(), what.size()) < 0) _exit(1);
  print_stack_trace();
  _exit(1);
}

}  // namespace llmc::host
