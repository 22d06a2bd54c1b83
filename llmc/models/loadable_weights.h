// The destination of weights from files, in any dtype: the memory of a model, the state of a
// training run, or host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/gemm/quantize_weight.h"

namespace llmc {

// The inputs of the products of a model with INT8 weights, in addition to weights.
struct ActivationScales {
  bool smooths_gelu = false;
  Tensor<float, 2> gelu_factors{};  // (L, 4C): multiply the results of GELU, if smooths_gelu
  // (4 L): of the inputs of kBlockLayers of each layer. Empty: each row has its own quantization.
  std::vector<Quantization> fixed{};
};

// The INT8 matrices of a model.
class LoadableCodes {
 public:
  virtual ~LoadableCodes() = default;

  virtual const ActivationScales& activations() const = 0;
  // Sets the codes (spec.shape) and the scales (one per output) of a quantized parameter. Finished
  // on return.
  virtual void set_codes(const ParameterSpec& spec, const WeightCodes& weight, Stream& stream) = 0;
  // Sets the factors (L, 4C) of the results of GELU. Finished on return.
  virtual void set_gelu_factors(const std::vector<float>& factors, Stream& stream) = 0;
  // Sets the quantization of all inputs of linear layers.
  virtual void set_fixed_quantization(std::vector<Quantization> fixed) = 0;
};

// Elements [first, first + count) of a rank's part of a parameter (ParameterSpec::part).
struct ElementRange {
  std::int64_t first = 0, count = 0;
};

class LoadableWeights {
 public:
  virtual ~LoadableWeights() = default;

  virtual const ParameterTable& table() const = 0;
  // Sets a parameter from spec.size() fp32 numbers, the same on every rank. Finished on return.
  // Throws if the dtype cannot hold a number.
  virtual void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) = 0;
  // The INT8 weights; null if the weights are floats.
  virtual LoadableCodes* quantized() { return nullptr; }

  // The elements of a parameter that this rank keeps, or rounds to what it keeps.
  virtual ElementRange kept_weights(const ParameterSpec& spec) const { return {0, spec.size()}; }
  // Sets these elements, which may be none. Finished on return. Throws if the dtype cannot hold a
  // number.
  virtual void set_kept_weights(const ParameterSpec& spec, const float* values, Stream& stream) {
    set_weight(spec, values, stream);
  }

  // Whether this rank stands for all of them where one result is enough, such as a hash of a file.
  virtual bool first_rank() const { return true; }
};

}  // namespace llmc
