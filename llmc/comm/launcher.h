// Detects whether a launcher (mpirun, srun, torchrun) started this process as one of several, from
// the environment variables that launchers set. No library is needed.
#pragma once

#include <string>

namespace llmc {

struct ProcessInfo {
  int rank = 0;
  int ranks = 1;
  std::string ranks_variable;  // environment variable that sets `ranks`; empty: no launcher
};

// The integer in an environment variable that is set; throws unless it is from `least` to `most`.
int number_from_environment(const char* variable, int least, int most);

ProcessInfo process_info_from_environment();

// "rank 1 of 4 (OMPI_COMM_WORLD_SIZE is set)"
std::string launched_rank_text(const ProcessInfo& process);

}  // namespace llmc
