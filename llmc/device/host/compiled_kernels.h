// Kernels as nvcc compiled them. In builds with -DLLMC_COMPILED_KERNELS, launch() runs a kernel's
// PTX instead of the host's code. test/ptx defines these functions; no program has them.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "llmc/device/grid.h"
#include "llmc/device/target.h"

namespace llmc::host {

// A launch, with its arguments as a GPU gets them: each at a multiple of its alignment.
struct CompiledLaunch {
  const void* kernel = nullptr;
  Grid grid;
  int block_threads = 0;
  std::size_t shared_bytes = 0;
  bool overlapped = false;
  const void* stream = nullptr;
  std::vector<std::byte> arguments;

  template <class T>
  void add(const T& argument) {
    arguments.resize((arguments.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const auto* const bytes = reinterpret_cast<const std::byte*>(&argument);
    arguments.insert(arguments.end(), bytes, bytes + sizeof argument);
  }
};

// Runs the kernel's PTX. Returns false if the host shall run the kernel itself. Throws an Error if
// the kernel has no PTX, or if its run is faulty.
bool run_compiled(const CompiledLaunch& launch);

// Memory that kernels may access. The host writes pinned memory without notice.
void add_device_memory(void* memory, std::size_t bytes, bool is_pinned);
void remove_device_memory(const void* memory);
// A tensor in an allocation; memory between its tensors belongs to none.
void add_device_tensor(const void* memory, std::size_t bytes);

// The next launch of a stream begins after the end of those before it.
void note_end_of_launches(const void* stream);

// Accesses of the host to device memory in the order of a stream.
void note_host_copy(const void* to, const void* from, std::size_t bytes);
void note_host_read(const void* memory, std::size_t bytes);
void note_host_write(const void* memory, std::size_t bytes);

}  // namespace llmc::host
