#include "llmc/comm/bootstrap.h"

#include <unistd.h>

#include <fstream>

namespace llmc {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string machine_text() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  return host_name() + " " + boot_id;
}

}  // namespace llmc
