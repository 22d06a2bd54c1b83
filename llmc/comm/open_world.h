// Connects the ranks that a launcher started. The only place that knows which libraries of
// communication the build has.
#pragma once

#include <memory>
#include <string>

#include "llmc/comm/launcher.h"
#include "llmc/comm/world.h"
#ifdef LLMC_MPI
#include "llmc/comm/mpi_world.h"
#endif

namespace llmc {

// "rank 1 of 4 (OMPI_COMM_WORLD_SIZE is set)"
inline std::string launched_rank_text(const ProcessInfo& process) {
  return "rank " + std::to_string(process.rank) + " of " + std::to_string(process.ranks) + " (" +
         process.ranks_variable + " is set)";
}

#ifdef LLMC_MPI
inline constexpr bool kHasMpi = true;
inline std::unique_ptr<World> open_mpi_world() {
  return std::make_unique<MpiWorld>();
}
#else
inline constexpr bool kHasMpi = false;
inline std::unique_ptr<World> open_mpi_world() {
  fail("this build has no MPI");
}
#endif

// The world of this process: one rank without a launcher, otherwise all that the launcher started.
inline std::unique_ptr<World> open_world(const ProcessInfo& process) {
  if (process.ranks <= 1) return std::make_unique<SingleRankWorld>();
  if (!kHasMpi) {
    fail(launched_rank_text(process) + ": this build has no MPI, which connects the ranks",
         "install it with scripts/setup.sh, build again; or start one process");
  }
  std::unique_ptr<World> world = open_mpi_world();
  if (world->ranks() == process.ranks) return world;
  fail(launched_rank_text(process) + ": MPI connects only " + std::to_string(world->ranks()) +
           " of them",
       "start the program with the mpirun of the MPI library that it was built with");
}

}  // namespace llmc
