#include "llmc/device/host/properties.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <thread>

#include "llmc/device/host/memory_limits.h"

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
  std::ifstream memory("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t kilobytes; memory >> key >> kilobytes >> unit;) {
    if (key == "MemTotal:") properties.total_memory = kilobytes * 1024;
    if (key == "MemAvailable:") properties.free_memory = kilobytes * 1024;
    if (properties.free_memory > 0) break;
  }
  properties.free_memory = std::min(
      {properties.free_memory, host::free_memory_of_cgroups(), host::free_address_space()});
  properties.l2_bytes = std::max<std::int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return properties;
}

}  // namespace llmc
