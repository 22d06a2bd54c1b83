// Starting a kernel on the host executor.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "llmc/device/host/executor.h"
#include "llmc/device/host/stream.h"

namespace llmc {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, int block_threads, std::size_t shared_bytes,
            Stream& stream, Arguments&&... arguments) {
  if (!check_launch(grid, block_threads, shared_bytes)) return;
  std::tuple<std::decay_t<Parameters>...> values(
      static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))...);
  stream.run([=] {
    const std::function<void()> call = [&] { std::apply(kernel, values); };
    host::run_grid(call, {grid.x, grid.y, grid.z}, block_threads, shared_bytes);
  });
}

}  // namespace llmc
