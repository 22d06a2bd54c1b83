// Memory of a block of one thread (block_threads.h) that is larger than shared memory. GPUs have no
// such blocks.
#pragma once

#include <cstdint>

#include "llmc/device/block_threads.h"
#include "llmc/device/target.h"
#ifndef __CUDACC__
#include "llmc/device/host/thread_memory.h"
#endif

namespace llmc {

// Returns memory for `count` numbers, at a multiple of 64 bytes, in which earlier contents may
// remain. It belongs to the OS thread: the next call in any kernel returns it again.
template <class T>
__device__ T* thread_memory([[maybe_unused]] std::int64_t count) {
#ifdef __CUDACC__
  return nullptr;
#else
  return static_cast<T*>(host::memory_of_thread(static_cast<std::size_t>(count) * sizeof(T)));
#endif
}

}  // namespace llmc
