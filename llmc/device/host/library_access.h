// Accesses of a library of the host to device memory, for the checks of the build: TSan does not
// see see accesses of a library, and kernels as nvcc compiled them may have stored undefined
// values.
#pragma once

#include <cstddef>

#include "llmc/device/host/compiled_kernels.h"
#include "llmc/device/host/sanitizer.h"

namespace llmc::host {

inline void library_reads(const void* memory, std::size_t bytes) {
  tsan_reads(memory, bytes);
  if constexpr (kGpuKernels) note_host_read(memory, bytes);
}

inline void library_writes(void* memory, std::size_t bytes) {
  tsan_writes(memory, bytes);
  if constexpr (kGpuKernels) note_host_write(memory, bytes);
}

}  // namespace llmc::host
