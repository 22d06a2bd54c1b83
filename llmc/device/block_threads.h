// Block sizes of kernels whose threads cooperate.
//
// On a GPU, many threads share the work of a block and meet at collectives. In the host executor a
// meeting costs about 10 ns per thread, which is more than most threads compute between two of
// them. There one thread does the work of the whole block: a loop over
// `i = thread_index(); i < n; i += kThreads` becomes a plain loop, which the compiler vectorises,
// and collectives return their argument.
//
// Builds with a sanitizer use the sizes of the GPU, because races between threads are what they
// look for. -DLLMC_ONE_THREAD_BLOCKS=0 or 1 chooses for any host build.
#pragma once

#include "llmc/device/target.h"
#ifndef __CUDACC__
#include "llmc/device/host/sanitizer.h"
#endif

namespace llmc {

#if defined(__CUDACC__) || defined(LLMC_COMPILED_KERNELS)
inline constexpr bool kOneThreadBlocks = false;
#elif defined(LLMC_ONE_THREAD_BLOCKS)
inline constexpr bool kOneThreadBlocks = LLMC_ONE_THREAD_BLOCKS != 0;
#else
inline constexpr bool kOneThreadBlocks = !host::kAddressSanitizer && !host::kThreadSanitizer;
#endif

// Number of threads that share some work: `gpu_threads` on a GPU, one in the host executor. Applies
// to the threads of a block and to neighbouring lanes that share a row.
__host__ __device__ constexpr int cooperating_threads(int gpu_threads) {
  return kOneThreadBlocks ? 1 : gpu_threads;
}

}  // namespace llmc
