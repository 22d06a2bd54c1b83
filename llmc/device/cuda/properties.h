// Properties of the current GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "llmc/device/cuda/stream.h"
#include "llmc/device/dtype.h"

namespace llmc {

struct DeviceProperties {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int processors = 0;                              // streaming multiprocessors
  double clock_hz = 0;                             // highest clock of the multiprocessors
  std::int64_t total_memory = 0, free_memory = 0;  // bytes
  std::int64_t l2_bytes = 0;                       // cache that all multiprocessors share
};

inline bool device_available(std::string* why_not) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  cudaGetLastError();
  if (why_not != nullptr) *why_not = status == cudaSuccess ? "no GPU" : cudaGetErrorString(status);
  return false;
}

inline std::string device_bus_id() {
  int device = 0;
  char text[32] = "";
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetPCIBusId(text, sizeof text, device), "cudaDeviceGetPCIBusId");
  return text;
}

inline DeviceProperties device_properties() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp found{};
  check_cuda(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties");
  int kilohertz = 0;
  check_cuda(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device),
             "cudaDeviceGetAttribute");
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  DeviceProperties properties;
  properties.name = found.name;
  properties.compute_major = found.major;
  properties.compute_minor = found.minor;
  properties.processors = found.multiProcessorCount;
  properties.clock_hz = 1e3 * kilohertz;
  properties.total_memory = static_cast<std::int64_t>(total_bytes);
  properties.free_memory = static_cast<std::int64_t>(free_bytes);
  properties.l2_bytes = found.l2CacheSize;
  return properties;
}

// Dense FLOP/s = processors × clock × FLOP per clock and processor. The last factor belongs to the
// architecture (NVIDIA's architecture papers: 1024 half-precision multiply-adds on sm_80 and 2048
// on sm_90; 64 or 128 fp32 lanes). 0 for any other: measure it. On sm_86 and sm_89 the
// half-precision factor differs from product to product (256 where accumulating in fp32 is
// throttled, else 512), which no property says.
inline double peak_flops(const DeviceProperties& properties, Dtype dtype) {
  double multiply_adds = 0;
  switch (properties.compute_major * 10 + properties.compute_minor) {
    case 80:
      multiply_adds = dtype != Dtype::fp32 ? 1024 : 64;
      break;
    case 90:
      multiply_adds = dtype != Dtype::fp32 ? 2048 : 128;
      break;
    default:
      return 0;
  }
  return 2.0 * multiply_adds * properties.processors * properties.clock_hz;
}

}  // namespace llmc
