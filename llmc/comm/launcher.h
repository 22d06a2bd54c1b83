// Whether this process is one of several that a launcher (mpirun, srun, torchrun) started, from the
// environment variables that launchers set; no library is needed to ask.
#pragma once

#include <cstdlib>
#include <string>

namespace llmc {

struct Launch {
  int rank = 0;
  int ranks = 1;
  std::string launcher;  // the variable that says so; empty: started by hand
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
