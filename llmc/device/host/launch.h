// Launches a kernel on the host executor.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "llmc/device/grid.h"
#include "llmc/device/host/compiled_kernels.h"
#include "llmc/device/host/executor.h"
#include "llmc/device/host/stream.h"

namespace llmc {

namespace host {

// A kernel with its arguments.
template <class... Parameters>
struct BoundKernel {
  void (*kernel)(Parameters...);
  std::tuple<std::decay_t<Parameters>...> arguments;

  // Runs `closure`, a BoundKernel, for the calling thread.
  static void call(const void* closure) {
    const BoundKernel& bound = *static_cast<const BoundKernel*>(closure);
    std::apply(bound.kernel, bound.arguments);
  }
};

template <class... Parameters, class... Arguments>
void launch(bool overlapped, void (*kernel)(Parameters...), Grid grid, int block_threads,
            std::size_t shared_bytes, Stream& stream, Arguments&&... arguments) {
  if (!check_launch(grid, block_threads, shared_bytes)) return;
  if (LaunchObserver* observer = stream.observer()) {
    observer->on_launch(reinterpret_cast<const void*>(kernel), block_threads, shared_bytes);
  }
  using Bound = BoundKernel<Parameters...>;
  const Bound bound{kernel,
                    {static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))...}};
  const auto run = [=](Block* block) {
    const Launch grid_launch{
        {&Bound::call, &bound}, {grid.x, grid.y, grid.z}, block_threads, shared_bytes, overlapped};
    block != nullptr ? run_grid_in(*block, grid_launch) : run_grid(grid_launch);
  };
  if constexpr (kGpuKernels) {
    CompiledLaunch compiled = {reinterpret_cast<const void*>(kernel),
                               grid,
                               block_threads,
                               shared_bytes,
                               overlapped,
                               &stream,
                               {}};
    std::apply([&](const auto&... argument) { (compiled.add(argument), ...); }, bound.arguments);
    const auto run_either = [=](Block* block) {
      if (!run_compiled(compiled)) run(block);
    };
    stream.run_launch(run_either, overlapped);
  } else {
    stream.run_launch(run, overlapped);
  }
}

}  // namespace host

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, int block_threads, std::size_t shared_bytes,
            Stream& stream, Arguments&&... arguments) {
  host::launch(false, kernel, grid, block_threads, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}

// A launch that may start before the previous one has ended (overlap.h). Throws an Error if no
// thread of a block calls wait_for_previous_launch().
template <class... Parameters, class... Arguments>
void launch_overlapped(void (*kernel)(Parameters...), Grid grid, int block_threads,
                       std::size_t shared_bytes, Stream& stream, Arguments&&... arguments) {
  host::launch(true, kernel, grid, block_threads, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}

}  // namespace llmc
