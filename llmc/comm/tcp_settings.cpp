#include "llmc/comm/tcp_settings.h"

#include <cstdlib>

#include "llmc/base/error.h"

namespace llmc {

bool is_variable_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

TcpSettings tcp_settings_from_environment(const ProcessInfo& process) {
  for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (is_variable_set(name)) continue;
    fail(launched_rank_text(process) + ": the environment variable " + name + " is not set",
         "set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free port of it, for all "
         "ranks");
  }
  TcpSettings settings;
  settings.rank = process.rank;
  settings.ranks = process.ranks;
  settings.address = std::getenv("MASTER_ADDR");
  settings.port = number_from_environment("MASTER_PORT", 1, 65534);
  // torchrun itself listens on MASTER_PORT.
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++settings.port;
  if (is_variable_set("LOCAL_RANK"))
    settings.local_rank = number_from_environment("LOCAL_RANK", 0, process.ranks - 1);
  return settings;
}

}  // namespace llmc
