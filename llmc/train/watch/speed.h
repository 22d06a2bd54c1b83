// The FLOP of a run's tokens, and the peak speed of the machine.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/peak.h"
#include "llmc/model/parameters.h"
#include "llmc/train/watch/mfu.h"

namespace llmc {

// FLOP per token, forward and backward, in the two common conventions: attention counts as the half
// of the (T, T) square that the causal mask leaves, or as the full square.
struct FlopsPerToken {
  double causal = 0, full = 0;
};

// 6N + 6·L·T·C and 6N + 12·L·T·C (Chowdhery et al., 2022, appendix B, has the latter). N counts all
// parameters except the position embeddings. The backward pass costs twice the forward pass.
inline FlopsPerToken flops_per_token(const ParameterTable& table, const Gpt2Config& config,
                                     std::int64_t T) {
  std::int64_t forward = 0;
  for (const ParameterSpec& spec : table.specs()) forward += spec.flops_per_token();
  const double products = 3.0 * static_cast<double>(forward);
  const double attention = 6.0 * static_cast<double>(config.layers * T * config.channels);
  return {products + attention, products + 2 * attention};
}

// Whether a run can measure the peak between its steps. On a GPU, the model uses the memory that a
// measurement needs.
inline constexpr bool kPeakFitsNextToModel = !kCudaTarget;

// Returns `override_tflops` unless it is 0, else the peak of the data sheet. If the table lacks the
// architecture, TrainingRunner::measured_peak_flops() must measure the peak.
inline Peak known_peak(double override_tflops, const DeviceProperties& properties, Dtype dtype,
                       bool tf32) {
  if (override_tflops > 0) return {1e12 * override_tflops, "--peak-tflops"};
  const DataSheetPeak data_sheet = data_sheet_peak(properties, dtype, tf32);
  if (data_sheet.flops() > 0) {
    return {data_sheet.flops(), "data sheet: " + data_sheet.text()};
  }
  return {0, "measured: the fastest matrix product", true};
}

}  // namespace llmc
