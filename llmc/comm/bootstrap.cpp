#include "llmc/comm/bootstrap.h"

#include <unistd.h>

#include <fstream>

namespace llmc {

std::string machine_text() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  return std::string(name) + " " + boot_id;
}

}  // namespace llmc
