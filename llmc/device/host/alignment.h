// Alignment of vectors in memory. A misaligned access is a fatal error on a GPU; a CPU executes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/device/host/sanitizer.h"

namespace llmc::host {

[[noreturn]] void report_misaligned(const void* p, std::size_t bytes, std::size_t alignment);

// In builds with a sanitizer, ends the program with a report if p, the address of a vector of
// `bytes` bytes, is not a multiple of `alignment`.
inline void check_aligned(const void* p, std::size_t bytes, std::size_t alignment) {
  if (!kSanitized || reinterpret_cast<std::uintptr_t>(p) % alignment == 0) return;
  report_misaligned(p, bytes, alignment);
}

}  // namespace llmc::host
