// Sensor readings of a GPU from NVIDIA's management library (NVML). The library comes with the
// driver and is opened at run time, so programs build, link and run without it. The few
// declarations below are NVML's binary interface (NVML API reference, "Device Queries"), so its
// header is not needed either.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>

namespace llmc {

// A quantity that NVML cannot report has no value.
struct GpuUsage {
  std::optional<double> utilisation;  // percent of time with at least one kernel running
  std::optional<double> power;        // watts
  std::optional<double> memory;       // bytes in use on the device, by all processes
  std::optional<double> temperature;  // degrees Celsius
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // Opens the library and the GPU at PCI bus id `bus_id`, such as 0000:3b:00.0. A device index
  // would be ambiguous: CUDA_VISIBLE_DEVICES renumbers devices for CUDA only. Returns null and sets
  // `reason` if the library or the GPU is unavailable.
  static std::unique_ptr<Nvml> open(const std::string& bus_id, std::string* reason = nullptr,
                                    const char* library = kLibrary) {
    std::unique_ptr<Nvml> nvml(new Nvml);
    const std::string error = nvml->start(bus_id, library);
    if (error.empty()) return nvml;
    if (reason != nullptr) *reason = error;
    return nullptr;
  }
  ~Nvml() {
    if (shutdown_ != nullptr) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  GpuUsage read() const {
    GpuUsage usage;
    Utilisation utilisation{};
    Memory memory{};
    unsigned celsius = 0;
    if (query(get_utilisation_, &utilisation)) usage.utilisation = utilisation.gpu;
    usage.power = power();
    if (query(get_memory_, &memory)) usage.memory = static_cast<double>(memory.used);
    if (query(get_temperature_, kSensorGpu, &celsius)) usage.temperature = celsius;
    return usage;
  }

  // Watts. GPUs since Ampere, except GA100, report the mean of the last second.
  std::optional<double> power() const {
    unsigned milliwatts = 0;
    if (!query(get_power_, &milliwatts)) return {};
    return 1e-3 * milliwatts;
  }

  // Joules used since the driver was loaded; GPUs before Volta do not count them. The driver
  // updates the counter every 20 to 100 ms.
  std::optional<double> energy() const {
    unsigned long long millijoules = 0;
    if (!query(get_energy_, &millijoules)) return {};
    return 1e-3 * static_cast<double>(millijoules);
  }

 private:
  using Status = int;      // nvmlReturn_t
  using Device = void*;    // nvmlDevice_t
  struct Utilisation {     // nvmlUtilization_t
    unsigned gpu, memory;  // percent
  };
  struct Memory {                          // nvmlMemory_t
    unsigned long long total, free, used;  // bytes
  };
  static constexpr Status kSuccess = 0;
  static constexpr int kSensorGpu = 0;  // NVML_TEMPERATURE_GPU

  Nvml() = default;

  // Returns an empty string, or the reason why NVML cannot be used.
  std::string start(const std::string& bus_id, const char* library) {
    library_ = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return dlerror();
    Status (*init)() = nullptr;
    Status (*find)(const char* bus_id, Device* device) = nullptr;
    Status (*shutdown)() = nullptr;
    load(init, "nvmlInit_v2");
    load(find, "nvmlDeviceGetHandleByPciBusId_v2");
    load(shutdown, "nvmlShutdown");
    if (init == nullptr || find == nullptr || shutdown == nullptr) {
      return std::string(library) + " is not NVML";
    }
    if (const Status status = init(); status != kSuccess) {
      return "nvmlInit_v2 failed with status " + std::to_string(status);
    }
    shutdown_ = shutdown;
    if (const Status status = find(bus_id.c_str(), &device_); status != kSuccess) {
      return "NVML has no GPU at " + bus_id + " (status " + std::to_string(status) + ")";
    }
    load(get_utilisation_, "nvmlDeviceGetUtilizationRates");
    load(get_power_, "nvmlDeviceGetPowerUsage");
    load(get_energy_, "nvmlDeviceGetTotalEnergyConsumption");
    load(get_memory_, "nvmlDeviceGetMemoryInfo");
    load(get_temperature_, "nvmlDeviceGetTemperature");
    return {};
  }

  template <class Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }

  // Returns false if there is no value: old drivers lack some functions, some GPUs lack sensors.
  template <class... Parameters, class... Arguments>
  bool query(Status (*get)(Device, Parameters...), Arguments... arguments) const {
    return get != nullptr && get(device_, arguments...) == kSuccess;
  }

  void* library_ = nullptr;
  Device device_ = nullptr;
  Status (*shutdown_)() = nullptr;  // null until NVML is initialised
  Status (*get_utilisation_)(Device, Utilisation*) = nullptr;
  Status (*get_power_)(Device, unsigned* milliwatts) = nullptr;
  Status (*get_energy_)(Device, unsigned long long* millijoules) = nullptr;
  Status (*get_memory_)(Device, Memory*) = nullptr;
  Status (*get_temperature_)(Device, int sensor, unsigned* celsius) = nullptr;
};

}  // namespace llmc
