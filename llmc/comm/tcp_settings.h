// How ranks find each other without MPI: MASTER_ADDR and MASTER_PORT, in addition to the rank and
// the number of ranks that a launcher sets.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "llmc/comm/launcher.h"

namespace llmc {

struct TcpSettings {
  int rank = 0, ranks = 1;
  std::string address;  // name or number of the machine of rank 0
  int port = 0;
  std::optional<int> local_rank;  // if the launcher does not set it, ranks of a machine are counted
  std::chrono::milliseconds deadline = std::chrono::minutes(2);  // of one wait for other ranks

  std::string place() const { return address + ", port " + std::to_string(port); }
};

bool is_variable_set(const char* name);

// Throws, naming the variable, for a value that is missing or not allowed.
TcpSettings tcp_settings_from_environment(const ProcessInfo& process);

}  // namespace llmc
