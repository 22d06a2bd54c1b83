// Properties of the machine the host executor runs on.
#pragma once

#include <cstdint>
#include <string>

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

inline int current_gpu() {
  return 0;
}

inline void use_gpu(int) {}

inline bool device_available(std::string*) {
  return true;
}

inline std::string device_bus_id() {
  return {};
}

DeviceProperties device_properties();

}  // namespace llmc
