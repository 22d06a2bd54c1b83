// Target that the kernels are compiled for: the GPU with nvcc, the host executor with any other
// compiler. On the host, CUDA's function qualifiers are empty macros, except __forceinline__.
//
// kGpuKernels: launches and layouts in memory are those of a GPU. With -DLLMC_COMPILED_KERNELS, the
// host build launches what nvcc compiled (host/compiled_kernels.h).
//
// LLMC_INLINE_ON_GPU is for large functions that several kernels call. A GPU needs them inlined, to
// keep arrays in registers. On the host they are compiled once for all kernels, which shortens the
// compilation by minutes.
#pragma once

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define LLMC_INLINE_ON_GPU __forceinline__
#define LLMC_GEMM_HEADER "llmc/ops/gemm/gemm_cublaslt.h"
#define LLMC_INVARIANT_GEMM_HEADER "llmc/ops/gemm/invariant_gemm_cuda.h"

namespace llmc {
inline constexpr bool kCudaTarget = true;
inline constexpr bool kGpuKernels = true;
inline constexpr const char* kTargetName = "cuda";
}  // namespace llmc

#else

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

#define LLMC_INLINE_ON_GPU __attribute__((noinline))
#define LLMC_GEMM_HEADER "llmc/ops/gemm/gemm_host.h"
#ifdef LLMC_COMPILED_KERNELS
#define LLMC_INVARIANT_GEMM_HEADER "llmc/ops/gemm/invariant_gemm_cuda.h"
#else
#define LLMC_INVARIANT_GEMM_HEADER "llmc/ops/gemm/invariant_gemm_host.h"
#endif

namespace llmc {
inline constexpr bool kCudaTarget = false;
#ifdef LLMC_COMPILED_KERNELS
inline constexpr bool kGpuKernels = true;
#else
inline constexpr bool kGpuKernels = false;
#endif
inline constexpr const char* kTargetName = "host";
}  // namespace llmc

#endif
