// Which parameters of a model INT8 weights have as codes, and how.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/device/dtype.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/gemm/quantize_weight.h"

namespace llmc {

inline OutputAxis output_axis(const ParameterSpec& spec) {
  return spec.axes.rows.front().name == AxisName::vocabulary ? OutputAxis::rows
                                                             : OutputAxis::columns;
}
inline WeightShape weight_shape(const ParameterSpec& spec) {
  return {spec.shape[0], spec.shape[1], output_axis(spec)};
}

// The linear layers of a block, in the order in which they are computed.
inline constexpr std::array<const char*, 4> kBlockLayers = {"attn.c_attn", "attn.c_proj",
                                                            "mlp.c_fc", "mlp.c_proj"};

// The linear layers of a model's blocks, in the order of ActivationScales::fixed.
inline std::vector<std::string> linear_layers(const ParameterTable& table) {
  std::vector<std::string> layers;
  constexpr std::string_view kSuffix = ".weight";
  for (const ParameterSpec& spec : table.specs()) {
    const bool has_tokens = spec.axes.rows.front().name == AxisName::vocabulary;
    if (is_quantized(spec) && !has_tokens)
      layers.push_back(spec.name.substr(0, spec.name.size() - kSuffix.size()));
  }
  return layers;
}

// The codes of a parameter that is quantized, from its numbers in T, which are finite.
template <class T>
WeightCodes quantize_parameter(const ParameterSpec& spec, const std::vector<T>& rounded) {
  std::vector<float> values(rounded.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(rounded[i]);
  return quantize_weight(values.data(), spec.shape[0], spec.shape[1], output_axis(spec), spec.name);
}

}  // namespace llmc
