// Detects whether a launcher (mpirun, srun, torchrun) started this process as one of several, from
// the environment variables that launchers set. No library is needed.
#pragma once

#include <cstdlib>
#include <string>

namespace llmc {

struct Launch {
  int rank = 0;
  int ranks = 1;
  std::string launcher;  // name of the variable with `ranks`; empty: no launcher
};

inline Launch launch_from_environment() {
  struct Variables {
    const char *rank, *ranks;
  };
  constexpr Variables kKnown[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE"},
                                  {"PMIX_RANK", "PMIX_SIZE"},
                                  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                  {"RANK", "WORLD_SIZE"}};
  for (const Variables& known : kKnown) {
    const char *rank = std::getenv(known.rank), *ranks = std::getenv(known.ranks);
    if (rank != nullptr && ranks != nullptr)
      return {std::atoi(rank), std::atoi(ranks), known.ranks};
  }
  return {};
}

}  // namespace llmc
