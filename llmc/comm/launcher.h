// Detects whether a launcher (mpirun, srun, torchrun) started this process as one of several, from
// the environment variables that launchers set. No library is needed.
#pragma once

#include <cstdlib>
#include <string>

namespace llmc {

struct ProcessInfo {
  int rank = 0;
  int ranks = 1;
  std::string ranks_variable;  // environment variable that sets `ranks`; empty: no launcher
};

inline ProcessInfo process_info_from_environment() {
  struct Variables {
    const char *rank, *ranks;
  };
  constexpr Variables kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                      {"PMI_RANK", "PMI_SIZE"},
                                      {"PMIX_RANK", "PMIX_SIZE"},
                                      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                      {"RANK", "WORLD_SIZE"}};
  for (const Variables& variables : kLaunchers) {
    const char* const rank = std::getenv(variables.rank);
    const char* const ranks = std::getenv(variables.ranks);
    if (rank != nullptr && ranks != nullptr)
      return {std::atoi(rank), std::atoi(ranks), variables.ranks};
  }
  return {};
}

}  // namespace llmc
