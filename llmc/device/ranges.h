// Named ranges on the timeline of NVIDIA's tools (Nsight Systems). They need NVTX from the CUDA
// toolkit; without it the functions do nothing. Ranges nest.
#pragma once

#ifdef __CUDACC__
#if __has_include(<nvtx3/nvToolsExt.h>)
#define LLMC_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

namespace llmc {

#ifdef LLMC_HAS_NVTX
inline void begin_range(const char* name) {
  nvtxRangePushA(name);
}
inline void end_range() {
  nvtxRangePop();
}
#else
inline void begin_range(const char*) {}
inline void end_range() {}
#endif

}  // namespace llmc
