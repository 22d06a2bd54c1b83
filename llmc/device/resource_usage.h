// Resource usage of the process: processor time and memory on the host (getrusage, /proc), and
// sensor readings of the GPU.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "llmc/device/gpu_sampler.h"
#include "llmc/device/nvml.h"
#include "llmc/device/properties.h"

namespace llmc {

// Processor seconds that all threads of this process have used so far, in user and kernel mode.
inline double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Resident memory of this process in bytes; no value if /proc does not report it.
inline std::optional<double> resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                             &std::fclose);
  long pages = 0;
  if (!file || std::fscanf(file.get(), "%*s %ld", &pages) != 1) return {};
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

struct ResourceUsage {
  std::optional<double> processors;   // processor seconds per second; 1: one busy core
  std::optional<double> host_memory;  // bytes
  GpuUsage gpu;
};

// Usage between two calls of read(); the first call measures from construction. `host_memory` is
// the value at the call.
class ResourceMeter {
 public:
  // Meters the current device. The GPU's values are missing if there is no GPU or NVML is
  // unavailable.
  ResourceMeter() : ResourceMeter(device_bus_id()) {}
  explicit ResourceMeter(const std::string& bus_id, const char* library = Nvml::kLibrary) {
    if (bus_id.empty()) return;
    if (auto nvml = Nvml::open(bus_id, nullptr, library)) {
      gpu_ = std::make_unique<GpuSampler>(std::move(nvml));
    }
  }

  ResourceUsage read() {
    const auto now = Clock::now();
    const double seconds = processor_seconds();
    const double elapsed = std::chrono::duration<double>(now - last_time_).count();
    ResourceUsage usage;
    if (elapsed > 0) usage.processors = (seconds - last_seconds_) / elapsed;
    usage.host_memory = resident_bytes();
    if (gpu_) usage.gpu = gpu_->take();
    last_time_ = now;
    last_seconds_ = seconds;
    return usage;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_time_ = Clock::now();
  double last_seconds_ = processor_seconds();
  std::unique_ptr<GpuSampler> gpu_;
};

}  // namespace llmc
