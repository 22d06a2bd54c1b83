// LLMC_GUARD=1: a mode of the host target in which device memory and streams behave as on a GPU.
//
// - Host code cannot access device memory: the first access ends the program with a report. Only
//   the work of streams can, and while it runs, all threads of the process can.
// - Streams run their work as late as the program allows (late_work.h).
// - Copies check on which side their operands are, and treat pageable memory as CUDA does
//   (memory.cpp).
#pragma once

#include <cstddef>

namespace llmc::host {

// Whether the environment has LLMC_GUARD=1. In builds with a sanitizer, throws an Error if it has.
bool is_guarded();

// Device memory, which is accessible only while an OpenDeviceMemory lives. Null if there is none.
void* allocate_guarded(std::size_t bytes);
void release_guarded(void* memory);

// Pinned memory, which copies distinguish from pageable memory.
void add_pinned(const void* memory, std::size_t bytes);
void remove_pinned(const void* memory);

enum class MemoryKind { pageable, pinned, device };

// Throws an Error if the range begins in device or pinned memory and ends beyond its allocation.
MemoryKind kind_of(const void* p, std::size_t bytes);

// Lets the process access device memory. Several may exist at a time, in any threads.
class OpenDeviceMemory {
 public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
  OpenDeviceMemory& operator=(const OpenDeviceMemory&) = delete;
};

}  // namespace llmc::host
