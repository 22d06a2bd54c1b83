// Measures the inputs of the linear layers of a float model on a calibration text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/ops/quantize.h"
#include "llmc/quantize/host_weights.h"

namespace llmc {

// The inputs of a block's linear layers, in the order of kBlockLayers.
enum class InputSite { c_attn, attention_c_proj, c_fc, mlp_c_proj };
inline constexpr std::array kInputSites = {InputSite::c_attn, InputSite::attention_c_proj,
                                           InputSite::c_fc, InputSite::mlp_c_proj};

const char* site_name(InputSite site);

// Measurements of an input (rows, K) on the text.
struct InputStatistics {
  std::vector<ValueRange> channels;  // (K): the range of each channel and 0
  std::vector<float> rows;           // (count, K): rows of the text, evenly spaced

  std::int64_t K() const;
  std::int64_t count() const;
};

// The measurements of all sites, layer by layer.
using Calibration = std::vector<std::array<InputStatistics, 4>>;

struct CalibrationOptions {
  std::int64_t window = 512;  // tokens of a window, at most the context
  std::int64_t windows = 16;  // maximum number, evenly spaced in the text
  std::int64_t rows = 128;    // rows of each input that are kept
};

// Runs the model, in fp32, over windows of `tokens`. Throws if there are fewer than two tokens, or
// if an input is not finite.
Calibration calibrate(const ModelConfig& config, const HostWeights& weights,
                      std::span<const std::int32_t> tokens, const CalibrationOptions& options = {});

}  // namespace llmc
