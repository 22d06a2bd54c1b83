// Properties of the current GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "llmc/device/cuda/stream.h"

namespace llmc {

struct DeviceProperties {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int processors = 0;                              // streaming multiprocessors
  double clock_hz = 0;                             // highest clock of the multiprocessors
  std::int64_t total_memory = 0, free_memory = 0;  // bytes
  double memory_bandwidth = 0;                     // bytes/s, from clock and bus width
  std::int64_t l2_bytes = 0;                       // cache that all multiprocessors share
};

inline int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

inline int current_gpu() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

inline void use_gpu(int index) {
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
}

inline bool device_available(std::string* reason) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  cudaGetLastError();
  if (reason != nullptr) *reason = status == cudaSuccess ? "no GPU" : cudaGetErrorString(status);
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
  cudaDeviceProp cuda_properties{};
  check_cuda(cudaGetDeviceProperties(&cuda_properties, device), "cudaGetDeviceProperties");
  const auto attribute = [device](cudaDeviceAttr name) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
    return value;
  };
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  DeviceProperties properties;
  properties.name = cuda_properties.name;
  properties.compute_major = cuda_properties.major;
  properties.compute_minor = cuda_properties.minor;
  properties.processors = cuda_properties.multiProcessorCount;
  properties.clock_hz = 1e3 * attribute(cudaDevAttrClockRate);
  properties.total_memory = static_cast<std::int64_t>(total_bytes);
  properties.free_memory = static_cast<std::int64_t>(free_bytes);
  // Two transfers per clock, in all kinds of memory that CUDA's GPUs have.
  properties.memory_bandwidth =
      2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  properties.l2_bytes = cuda_properties.l2CacheSize;
  return properties;
}

}  // namespace llmc
