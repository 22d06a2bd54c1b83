#include <cstddef>
#include <cstdio>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/quantize/calibrated_scales.h"
#include "llmc/quantize/calibration.h"

namespace llmc {

namespace calibrated_scales_detail {

namespace {

void print_choices(const std::vector<BlockSmoothing>& choices) {
  for (std::size_t l = 0; l < choices.size(); ++l) {
    std::string line = "smoothing: h." + std::to_string(l);
    for (const InputSite site : kInputSites) {
      const SmoothingChoice& choice = choices[l][static_cast<std::size_t>(site)];
      char text[96];
      std::snprintf(
          text, sizeof text, "  %s %s (error %.2g, %.2g without)", site_name(site),
          choice.factors.empty() ? "off" : std::to_string(choice.alpha).substr(0, 3).c_str(),
          choice.error, choice.plain_error);
      line += text;
    }
    Notice::print(line);
  }
}

}  // namespace

std::vector<float> gelu_factors(const std::vector<BlockSmoothing>& choices, std::int64_t hidden) {
  std::vector<float> all;
  bool any = false;
  for (const BlockSmoothing& block : choices) {
    const auto& factors = block[static_cast<std::size_t>(InputSite::mlp_c_proj)].factors;
    any = any || !factors.empty();
    for (std::int64_t k = 0; k < hidden; ++k)
      all.push_back(factors.empty() ? 1.0f : 1.0f / factors[static_cast<std::size_t>(k)]);
  }
  return any ? all : std::vector<float>{};
}

}  // namespace calibrated_scales_detail

CalibratedScales calibrate_scales(const ModelConfig& config, HostWeights& weights,
                                  std::span<const std::int32_t> text,
                                  const QuantizeOptions& options) {
  using namespace calibrated_scales_detail;
  const Calibration calibration = calibrate(config, weights, text);
  std::vector<BlockSmoothing> choices(calibration.size());
  if (options.smoothing) {
    choices = smooth(weights, calibration, options.activations);
    print_choices(choices);
  }
  CalibratedScales scales;
  scales.gelu_factors = gelu_factors(choices, config.hidden_size());
  if (!options.activations.is_static) return scales;
  for (std::size_t l = 0; l < calibration.size(); ++l) {
    for (std::size_t i = 0; i < kInputSites.size(); ++i) {
      scales.fixed.push_back(activation_quantization(
          smooth_range(calibration[l][i], choices[l][i].factors), options.activations.zero_points));
    }
  }
  return scales;
}

void set_scales(LoadableCodes& weights, const CalibratedScales& scales, Stream& stream) {
  if (!scales.gelu_factors.empty()) weights.set_gelu_factors(scales.gelu_factors, stream);
  if (!scales.fixed.empty()) weights.set_fixed_quantization(scales.fixed);
}

}  // namespace llmc
