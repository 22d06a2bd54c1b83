// Memory that an OS thread keeps for the blocks that it runs.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace llmc::host {

// Returns at least `bytes` bytes at a multiple of 64, a cache line. The earlier ones may be gone.
inline void* memory_of_thread(std::size_t bytes) {
  constexpr auto kLine = std::align_val_t{64};
  struct Delete {
    void operator()(void* memory) const { ::operator delete(memory, kLine); }
  };
  static thread_local std::unique_ptr<void, Delete> memory;
  static thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    memory.reset();
    capacity = 0;
    memory.reset(::operator new(bytes, kLine));
    capacity = bytes;
  }
  return memory.get();
}

}  // namespace llmc::host
