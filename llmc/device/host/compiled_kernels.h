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
  std::vector<std::byte> arguments;

  template <class T>
  void add(const T& argument) {
    arguments.resize((arguments.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const auto* const bytes = reinterpret_cast<const std::byte*>(&argument);
    arguments.insert(arguments.end(), bytes, bytes + sizeof argument);
  }
};

// Runs the kernel's PTX. Returns false for a kernel of a test, which the host runs itself. Throws
// an Error if a kernel of the engine has no PTX, or if its run is faulty.
bool run_compiled(const CompiledLaunch& launch);

// Memory that kernels may access.
void add_device_memory(void* memory, std::size_t bytes);
void remove_device_memory(const void* memory);

}  // namespace llmc::host
