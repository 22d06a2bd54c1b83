// Grid of a launch (number of blocks) and the limits of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/block_threads.h"
#include "llmc/device/shared_layout.h"

namespace llmc {

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// Returns false if the grid is empty; throws if the launch exceeds a limit. The limits are those of
// every GPU since sm_80; in addition, a block must consist of whole warps. In the host executor it
// may also be a single thread, which is a warp of its own (block_threads.h).
inline bool check_launch(Grid grid, int block_threads, std::size_t shared_bytes) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return false;
  const bool grid_fits = grid.x > 0 && grid.x <= 0x7fffffff && grid.y > 0 && grid.y <= 65535 &&
                         grid.z > 0 && grid.z <= 65535;
  if (!grid_fits) {
    fail("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
         std::to_string(grid.z) + " blocks: at most 2147483647 x 65535 x 65535 are allowed");
  }
  const bool is_one_thread = kOneThreadBlocks && block_threads == 1;
  if (!is_one_thread && (block_threads <= 0 || block_threads > 1024 || block_threads % 32 != 0)) {
    fail("a block of " + std::to_string(block_threads) +
         " threads: a multiple of 32 up to 1024 is allowed");
  }
  if (shared_bytes > kMaxSharedBytes) {
    fail("a block with " + std::to_string(shared_bytes) + " bytes of shared memory: at most " +
         std::to_string(kMaxSharedBytes) + " are allowed, which every GPU since sm_80 has");
  }
  return true;
}

}  // namespace llmc
