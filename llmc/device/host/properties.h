// Properties of the machine the host executor runs on.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "llmc/device/host/memory_limits.h"

namespace llmc {

struct DeviceProperties {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int processors = 0;  // cores
  double clock_hz = 0;
  std::int64_t total_memory = 0, free_memory = 0;  // bytes
  double memory_bandwidth = 0;                     // bytes/s; 0: unknown
  std::int64_t l2_bytes = 0;                       // L3 cache, shared by all cores; 0: unknown
};

inline int gpu_count() {
  return 0;
}

inline void use_gpu(int) {}

inline bool device_available(std::string*) {
  return true;
}

inline std::string device_bus_id() {
  return {};
}

inline DeviceProperties device_properties() {
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
