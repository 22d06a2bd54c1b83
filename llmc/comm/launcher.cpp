#include "llmc/comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "llmc/base/error.h"

namespace llmc {

namespace {

constexpr int kMaxRanks = 1 << 16;

}  // namespace

int number_from_environment(const char* variable, int least, int most) {
  const char* const value = std::getenv(variable);
  const std::string text = value == nullptr ? "" : value;
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc() && end == text.data() + text.size() && least <= number &&
      number <= most)
    return number;
  fail(std::string("the environment variable ") + variable + " is '" + text +
       "'; allowed are integers from " + std::to_string(least) + " to " + std::to_string(most));
}

ProcessInfo process_info_from_environment() {
  struct Variables {
    const char *rank, *ranks;
  };
  constexpr Variables kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                      {"PMI_RANK", "PMI_SIZE"},
                                      {"PMIX_RANK", "PMIX_SIZE"},
                                      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                      {"RANK", "WORLD_SIZE"}};
  for (const Variables& variables : kLaunchers) {
    if (std::getenv(variables.rank) == nullptr || std::getenv(variables.ranks) == nullptr) continue;
    const int ranks = number_from_environment(variables.ranks, 1, kMaxRanks);
    return {number_from_environment(variables.rank, 0, ranks - 1), ranks, variables.ranks};
  }
  return {};
}

std::string launched_rank_text(const ProcessInfo& process) {
  return "rank " + std::to_string(process.rank) + " of " + std::to_string(process.ranks) + " (" +
         process.ranks_variable + " is set)";
}

}  // namespace llmc
