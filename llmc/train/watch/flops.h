// The FLOP of a run's tokens, and the peak speed of the machine.
#pragma once

#include <cstdint>

#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/train/watch/mfu.h"

namespace llmc {

// FLOP per token, forward and backward, in the two common conventions: attention counts as the half
// of the (T, T) square that the causal mask leaves, or as the full square.
struct FlopsPerToken {
  double causal = 0, full = 0;
};

// 6N + 6·L·T·C and 6N + 12·L·T·C (Chowdhery et al., 2022, appendix B, has the latter). N counts all
// parameters except the position embeddings. The backward pass costs twice the forward pass: once
// for the gradients of parameters, and once for those of activations. Frozen parameters do without
// the former, and everything below the lowest one that learns without both.
FlopsPerToken flops_per_token(const ParameterTable& table, const ModelConfig& config,
                              std::int64_t T);

// Whether a run can measure the peak between its steps. On a GPU, the model uses the memory that a
// measurement needs.
inline constexpr bool kPeakFitsNextToModel = !kCudaTarget;

// Returns `override_tflops` unless it is 0, else the peak of the data sheet. If the table lacks the
// architecture, TrainingRunner::measured_peak_flops() must measure the peak.
Peak known_peak(double override_tflops, const DeviceProperties& properties, Dtype dtype, bool tf32);

}  // namespace llmc
