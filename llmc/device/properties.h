// Properties of the machine that the kernels run on.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/properties.h"
#else
#include "llmc/device/host/properties.h"
#endif

// Both targets define, in namespace llmc:
//   struct DeviceProperties { name, compute_major, compute_minor, processors, clock_hz,
//                             total_memory, free_memory, l2_bytes,
//                             memory_bandwidth }
//   DeviceProperties device_properties();
//   bool device_available(std::string* reason);
//   std::string device_bus_id();  // PCI bus id of the GPU (0000:3b:00.0); empty on the host
//   int gpu_count();               // GPUs that this process can use; 0 on the host
//   int current_gpu();             // of the calling thread; 0 on the host
//   void use_gpu(int index);       // makes this GPU the calling thread's current one; before its
//                                  // first stream or buffer; does nothing on the host
