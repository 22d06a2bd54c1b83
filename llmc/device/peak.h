// Peak FLOP/s of dense matrix products according to the GPU's data sheet. The lookup uses the GPU's
// architecture and number of multiprocessors, not its name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "llmc/device/dtype.h"
#include "llmc/device/properties.h"

namespace llmc {

// Tensor-core rate of one architecture: bf16 or fp16 operands, fp32 accumulation, no sparsity.
struct TensorCoreRate {
  int compute_capability;  // 10 x major + minor
  int processors;          // multiprocessors of the product; 0: any number
  double flops_per_clock;  // per multiprocessor
  double clock_hz;         // clock that the data sheet assumes; below the highest clock
};

// Sources: NVIDIA's architecture whitepapers and data sheets; the comment on each row has the data
// sheet's figure. Data sheets of one architecture assume different clocks; the number of
// multiprocessors distinguishes those products. Products with the same number but a lower figure,
// such as H100 NVL, need --peak-tflops. sm_86, sm_89, sm_120 and sm_121 are missing: their rate
// with fp32 accumulation differs between products of one architecture, and no device property shows
// it.
inline constexpr TensorCoreRate kTensorCoreRates[] = {
    {80, 56, 2048, 1.44e9},    // A30: 165 TFLOP/s
    {80, 0, 2048, 1.41e9},     // A100: 312
    {90, 114, 4096, 1.62e9},   // H100 PCIe: 756
    {90, 0, 4096, 1.83e9},     // H100 SXM, H200, GH200: 989
    {100, 0, 8192, 1.8558e9},  // B200: 2250
};

struct DataSheetPeak {
  std::int64_t processors = 0;
  double flops_per_clock = 0;  // per multiprocessor
  double clock_hz = 0;

  double flops() const { return static_cast<double>(processors) * flops_per_clock * clock_hz; }
  // "132 SMs x 4096 FLOP per clock x 1.83 GHz"
  std::string text() const {
    char line[96];
    std::snprintf(line, sizeof line, "%lld SMs x %.0f FLOP per clock x %.2f GHz",
                  static_cast<long long>(processors), flops_per_clock, 1e-9 * clock_hz);
    return line;
  }
};

// Peak of matrix products in `dtype`. With `tf32`, fp32 products run on tensor cores at half the
// 16-bit rate. flops() is 0 if the architecture is not in the table; measure the peak in that case.
// Tensor cores run at the data sheet's clock, or at the GPU's highest clock if that is lower.
inline DataSheetPeak data_sheet_peak(const DeviceProperties& device, Dtype dtype, bool tf32) {
  const int capability = 10 * device.compute_major + device.compute_minor;
  for (const TensorCoreRate& rate : kTensorCoreRates) {
    if (rate.compute_capability != capability) continue;
    if (rate.processors != 0 && rate.processors != device.processors) continue;
    const double tensor_clock = std::min(rate.clock_hz, device.clock_hz);
    if (dtype != Dtype::fp32) return {device.processors, rate.flops_per_clock, tensor_clock};
    if (tf32) return {device.processors, rate.flops_per_clock / 2, tensor_clock};
    // Without TF32, fp32 uses the FMA lanes of a multiprocessor: 64 on sm_80, 128 on later
    // architectures (2 FLOP per lane and clock). Data sheets state this rate at the highest clock.
    return {device.processors, capability == 80 ? 128.0 : 256.0, device.clock_hz};
  }
  return {};
}

}  // namespace llmc
