// Launches a kernel on the host executor.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "llmc/device/grid.h"
#include "llmc/device/host/executor.h"
#include "llmc/device/host/stream.h"

namespace llmc {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, int block_threads, std::size_t shared_bytes,
            Stream& stream, Arguments&&... arguments) {
  if (!check_launch(grid, block_threads, shared_bytes)) return;
  if (LaunchObserver* observer = stream.observer()) {
    observer->on_launch(reinterpret_cast<const void*>(kernel), block_threads, shared_bytes);
  }
  std::tuple<std::decay_t<Parameters>...> values(
      static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))...);
  stream.run([=, block = stream.block()] {
    const auto call = [&] { std::apply(kernel, values); };
    using Call = decltype(call);
    const host::KernelCall kernel_call{[](const void* f) { (*static_cast<Call*>(f))(); }, &call};
    const host::Launch grid_launch{
        kernel_call, {grid.x, grid.y, grid.z}, block_threads, shared_bytes};
    block != nullptr ? host::run_grid_in(*block, grid_launch) : host::run_grid(grid_launch);
  });
}

// A launch that may start before the previous one has ended (overlap.h).
template <class... Parameters, class... Arguments>
void launch_overlapped(void (*kernel)(Parameters...), Grid grid, int block_threads,
                       std::size_t shared_bytes, Stream& stream, Arguments&&... arguments) {
  launch(kernel, grid, block_threads, shared_bytes, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace llmc
