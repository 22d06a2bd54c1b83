#include "llmc/device/host/properties.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <thread>

#include "llmc/device/memory_limits.h"

namespace llmc {

DeviceProperties device_properties() {
  DeviceProperties properties;
  properties.name = "host CPU";
  properties.processors = static_cast<int>(std::thread::hardware_concurrency());
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      properties.name = line.substr(colon + 2);
      break;
    }
  }
  const host::Memory memory = host::memory();
  properties.total_memory = memory.total;
  properties.free_memory = memory.free;
  properties.l2_bytes = std::max<std::int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return properties;
}

}  // namespace llmc
