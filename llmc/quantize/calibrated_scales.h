// A float model becomes the weights and scales of an INT8 model: smoothing and fixed scales from a
// calibration text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/ops/quantize.h"
#include "llmc/quantize/host_weights.h"
#include "llmc/quantize/smoothing.h"

namespace llmc {

struct QuantizeOptions {
  ActivationMode activations{};
  bool smoothing = true;
};

// The results of calibration in addition to the weights.
struct CalibratedScales {
  std::vector<float> gelu_factors{};  // (L, 4C); empty if no input of mlp.c_proj is smoothed
  std::vector<Quantization> fixed{};  // (4 L); empty if activations are quantized per token
};

namespace calibrated_scales_detail {

std::vector<float> gelu_factors(const std::vector<BlockSmoothing>& choices, std::int64_t hidden);

}  // namespace calibrated_scales_detail

// Smooths `weights` in place and returns the scales. Prints the choices on stderr. Throws as
// calibrate() does.
CalibratedScales calibrate_scales(const ModelConfig& config, HostWeights& weights,
                                  std::span<const std::int32_t> text,
                                  const QuantizeOptions& options);

// Sets the scales of INT8 weights.
void set_scales(LoadableCodes& weights, const CalibratedScales& scales, Stream& stream);

}  // namespace llmc
