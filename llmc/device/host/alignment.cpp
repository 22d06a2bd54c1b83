#include "llmc/device/host/alignment.h"

#include <cstdio>
#include <string>

#include "llmc/device/host/fatal_report.h"

namespace llmc::host {

void report_misaligned(const void* p, std::size_t bytes, std::size_t alignment) {
  char text[160];
  std::snprintf(
      text, sizeof text,
      "misaligned access: the address %p of a vector of %zu bytes is not a multiple of %zu", p,
      bytes, alignment);
  report_and_exit(text);
}

}  // namespace llmc::host
