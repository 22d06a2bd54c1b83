#include "llmc/device/host/executor.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "llmc/device/host/uninitialised_trap.h"
#include "llmc/device/host/workers.h"
#include "llmc/device/math.h"

namespace llmc {

namespace host {

namespace {

Block& block_of_this_thread() {
  static thread_local const std::unique_ptr<Block> block = std::make_unique<Block>();
  return *block;
}

// Runs blocks [first, end) of a launch; x varies fastest, then y, then z.
void run_blocks(Block& block, const Launch& launch, std::int64_t first, std::int64_t end) {
  const auto [x, y, z] = launch.grid;
  UninitialisedTrap trap;
  for (std::int64_t i = first; i < end; ++i) block.run(launch, {i % x, i / x % y, i / (x * y)});
}

}  // namespace

void run_grid(const Launch& launch) {
  const std::int64_t blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  WorkerPool& pool = workers();
  // Launches of many blocks hand them out in bundles of up to 16, to reduce the overhead per block.
  const std::int64_t bundle = std::clamp<std::int64_t>(blocks / (8 * pool.threads()), 1, 16);
  pool.run(ceil_div(blocks, bundle), [&](std::int64_t piece) {
    run_blocks(block_of_this_thread(), launch, piece * bundle,
               std::min(blocks, (piece + 1) * bundle));
  });
}

void run_grid_in(Block& block, const Launch& launch) {
  block.start_launch(launch.threads, launch.overlapped);
  run_blocks(block, launch, 0, launch.grid.x * launch.grid.y * launch.grid.z);
  block.end_launch();
}

}  // namespace host

}  // namespace llmc
