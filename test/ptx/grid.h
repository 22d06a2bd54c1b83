// Runs the blocks of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "test/ptx/program.h"
#include "test/ptx/races.h"
#include "test/ptx/warp.h"

namespace llmc_ptx {

struct LaunchShape {
  Dim3 grid;
  int threads = 0;
  std::int64_t dynamic_shared_bytes = 0;
  bool checks_undefined = true;
  std::int64_t max_blocks = std::numeric_limits<std::int64_t>::max();
  // The accesses of the blocks to global memory are noted here; null: races are not checked.
  std::shared_ptr<GlobalRaces> races = nullptr;
  // Not null: the launch may begin before the end of these, and every block must wait for them.
  const EarlierLaunches* earlier = nullptr;
};

struct Counts {
  std::uint64_t instructions = 0;         // of warps
  std::uint64_t thread_instructions = 0;  // of threads
};

// `parameters`: program.parameter_bytes. The seed decides what the manual of PTX leaves open, and
// the order of blocks and warps. Of a grid with more blocks than max_blocks, only so many run,
// evenly spaced, the first one and the last one among them. Throws an Error that names kernel,
// place, block and thread.
Counts run_grid(const Program& program, const LaunchShape& shape, const std::byte* parameters,
                std::uint64_t seed);

}  // namespace llmc_ptx
