// INT8 matrices in safetensors. Each is two tensors: NAME.weight, I8, in the shape of the float
// tensor, and NAME.weight_scale, F32, one per output. The scales have the shape that broadcasts:
// (1, out) for a linear layer, which is stored (in, out), and (V, 1) for the token embeddings. So
// NAME.weight times NAME.weight_scale is the float tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/ops/gemm/quantize_weight.h"

namespace llmc {

// Returns the name of the scales of a matrix, such as "wte.weight".
inline std::string scale_name(const std::string& name) {
  return name + "_scale";
}

// The shape of the scales of a matrix (rows, columns).
inline Shape scale_shape(const Shape& shape, OutputAxis outputs) {
  return outputs == OutputAxis::rows ? Shape{shape[0], 1} : Shape{1, shape[1]};
}

// Names of the tensors that belong to the input of a linear layer, such as "h.0.attn.c_attn": its
// scale and zero point in w8a8-static, and the factors by which GELU's results are multiplied.
inline std::string input_scale_name(const std::string& layer) {
  return layer + ".input_scale";
}
inline std::string input_zero_point_name(const std::string& layer) {
  return layer + ".input_zero_point";
}
inline std::string input_smoothing_name(const std::string& layer) {
  return layer + ".input_smoothing";
}

namespace quantized_files_detail {

inline void require_dtype(const HuggingFaceWeights& weights, const std::string& name,
                          TensorDtype dtype) {
  if (weights.dtype(name) == dtype) return;
  fail(weights.label(name) + " has dtype " + tensor_dtype_name(weights.dtype(name)) + ", but " +
           kConfigName + " has a " + kQuantizationKey + ", which requires " +
           tensor_dtype_name(dtype),
       "check that both files belong to the same model");
}

// Copies the elements of a tensor of this dtype. Throws if the tensor is missing or has another
// shape or dtype.
template <class Stored>
std::vector<Stored> read_stored(const HuggingFaceWeights& weights, const std::string& name,
                                const Shape& shape, TensorDtype dtype) {
  require_dtype(weights, name, dtype);
  const MappedFile map = weights.map(name, shape);
  const std::span<const std::byte> bytes = map.bytes();
  std::vector<Stored> values(bytes.size() / sizeof(Stored));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace quantized_files_detail

// Throws if a matrix of the directory is INT8, which without a quantization_config has no meaning.
inline void require_no_codes(const HuggingFaceWeights& weights) {
  for (const std::string& name : weights.names()) {
    if (weights.dtype(name) != TensorDtype::i8) continue;
    fail(weights.label(name) + " has dtype I8, but " + kConfigName + " has no " + kQuantizationKey,
         "check that both files belong to the same model");
  }
}

// Throws unless these matrices, as far as they exist, are INT8.
inline void require_codes(const HuggingFaceWeights& weights,
                          const std::vector<std::string>& matrices) {
  for (const std::string& name : matrices) {
    if (weights.contains(name))
      quantized_files_detail::require_dtype(weights, name, TensorDtype::i8);
  }
}

// Reads positive numbers that belong to a matrix, such as its scales, by their name. Throws if the
// tensor is missing, not F32, of another shape, or if a number is not positive and finite.
inline std::vector<float> read_factors(const HuggingFaceWeights& weights, const std::string& name,
                                       const Shape& shape) {
  const std::vector<float> factors =
      quantized_files_detail::read_stored<float>(weights, name, shape, TensorDtype::f32);
  check_elements(
      factors, shape, is_not_positive_and_finite, "not positive and finite",
      [&] { return weights.label(name); }, "the file is damaged; quantize the model again");
  return factors;
}

// Reads the fixed quantization of the input of a linear layer.
inline Quantization read_input_quantization(const HuggingFaceWeights& weights,
                                            const std::string& layer) {
  const float scale = read_factors(weights, input_scale_name(layer), {1}).front();
  const auto zero = quantized_files_detail::read_stored<std::int8_t>(
      weights, input_zero_point_name(layer), {1}, TensorDtype::i8);
  return {scale, zero.front()};
}

// Reads a matrix and its scales. Throws if one is missing or damaged; the error names file, tensor
// and problem.
inline WeightCodes read_quantized_weight(const HuggingFaceWeights& weights, const std::string& name,
                                         const Shape& shape, OutputAxis outputs) {
  using namespace quantized_files_detail;
  WeightCodes weight;
  weight.codes = read_stored<std::int8_t>(weights, name, shape, TensorDtype::i8);
  weight.scales = read_factors(weights, scale_name(name), scale_shape(shape, outputs));
  const auto wrong = std::ranges::find(weight.codes, std::int8_t{-128});
  if (wrong != weight.codes.end()) {
    fail(weights.label(name) + ": code " + std::to_string(wrong - weight.codes.begin()) +
             " is -128, outside [-127, 127]",
         "the file is damaged; quantize the model again");
  }
  return weight;
}

}  // namespace llmc
