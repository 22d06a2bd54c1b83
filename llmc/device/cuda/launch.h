// Launches a kernel on the GPU, without <<<>>> so that any C++ compiler can parse the callers.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "llmc/device/cuda/stream.h"
#include "llmc/device/grid.h"

namespace llmc {

namespace cuda {

// Whether wait_for_previous_launch() of this kernel waits. Kernels compiled for sm_80 contain no
// wait, also if the driver compiles their PTX for a newer GPU, so they must not start early.
inline bool can_wait(const void* kernel) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90;
}

template <class... Parameters, class... Arguments>
void launch(bool overlapped, void (*kernel)(Parameters...), Grid grid, int block_threads,
            std::size_t shared_bytes, Stream& stream, Arguments&&... arguments) {
  if (!check_launch(grid, block_threads, shared_bytes)) return;
  if (LaunchObserver* observer = stream.observer()) {
    observer->on_launch(reinterpret_cast<const void*>(kernel), block_threads, shared_bytes);
  }
  // A launch with more dynamic shared memory fails unless the kernel's limit is raised first.
  constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
  if (shared_bytes > kDefaultSharedBytes) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                        static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(block_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlapped && can_wait(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
             "cudaLaunchKernelEx");
}

}  // namespace cuda

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, int block_threads, std::size_t shared_bytes,
            Stream& stream, Arguments&&... arguments) {
  cuda::launch(false, kernel, grid, block_threads, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}

// A launch that may start before the previous one has ended (overlap.h).
template <class... Parameters, class... Arguments>
void launch_overlapped(void (*kernel)(Parameters...), Grid grid, int block_threads,
                       std::size_t shared_bytes, Stream& stream, Arguments&&... arguments) {
  cuda::launch(true, kernel, grid, block_threads, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}

}  // namespace llmc
