// The weights of a model of which the matrices are INT8: those of linear layers per output, the
// token embeddings and the head per token. Norms, biases and position embeddings stay in T. For
// inference; the passes of training cannot read these weights.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/models/int8_layout.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/models/round_weight.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/gemm/quantize_weight.h"

namespace llmc {

template <class T>
class Int8Weights final : public ParameterSource, public LoadableCodes {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `table`, of one rank, outlives the
  // weights.
  Int8Weights(const ParameterTable& table, MemoryPlan& plan)
      : table_(table), tensors_(table.specs().size()) {
    require(table.place().tensor_ranks == 1, "INT8 weights need the whole model on its rank");
    for (const ParameterSpec& spec : table.specs()) {
      Tensors& tensors = of(spec);
      if (!is_quantized(spec)) {
        plan.reserve("weights", tensors.values, spec.size());
        continue;
      }
      const WeightShape shape = weight_shape(spec);
      const std::int64_t columns = CodeMatrix::padded_columns(shape.N);
      plan.reserve("INT8 weights", tensors.codes, code_bytes(shape.K, shape.N));
      plan.reserve("INT8 weights", tensors.scales, columns);
      plan.reserve("INT8 weights", tensors.sums, columns);
    }
    const ParameterSpec& hidden = table.find("h.0.mlp.c_fc.bias");
    const auto layers = std::ssize(linear_layers(table)) / std::ssize(kBlockLayers);
    plan.reserve("INT8 weights", activations_.gelu_factors, layers, hidden.size());
  }
  Int8Weights(const Int8Weights&) = delete;
  Int8Weights& operator=(const Int8Weights&) = delete;

  // Rounds spec.size() fp32 numbers to T, and quantizes the result if the parameter is quantized:
  // training quantizes the weights in T as well. Finished on return. Throws if T cannot hold a
  // number.
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) {
    const std::vector<T> rounded = round_weight<T>(spec, values);
    if (!is_quantized(spec)) {
      copy_to_device(of(spec).values.data, rounded.data(), spec.size(), stream);
      stream.synchronize();
      return;
    }
    set_codes(spec, quantize_parameter<T>(spec, rounded), stream);
  }

  void set_codes(const ParameterSpec& spec, const WeightCodes& weight, Stream& stream) override {
    const WeightShape shape = weight_shape(spec);
    const std::int64_t columns = CodeMatrix::padded_columns(shape.N);
    require(std::ssize(weight.codes) == spec.size() && std::ssize(weight.scales) == shape.N,
            spec.name + ": codes or scales of another shape");
    std::vector<std::int8_t> packed(static_cast<std::size_t>(code_bytes(shape.K, shape.N)));
    std::vector<std::int32_t> sums(static_cast<std::size_t>(columns));
    pack_codes(packed.data(), sums.data(), weight.codes.data(), spec.shape[0], spec.shape[1],
               output_axis(spec));
    std::vector<float> scales = weight.scales;
    scales.resize(static_cast<std::size_t>(columns));
    const Tensors& tensors = of(spec);
    copy_to_device(tensors.codes.data, packed.data(), std::ssize(packed), stream);
    copy_to_device(tensors.scales.data, scales.data(), columns, stream);
    copy_to_device(tensors.sums.data, sums.data(), columns, stream);
    stream.synchronize();
  }

  const ParameterTable& table() const { return table_; }
  const ActivationScales& activations() const override { return activations_; }

  void set_gelu_factors(const std::vector<float>& factors, Stream& stream) override {
    const Tensor<float, 2>& all = activations_.gelu_factors;
    require(std::ssize(factors) == all.size(), "factors of GELU of another number");
    activations_.smooths_gelu = true;
    copy_to_device(all.data, factors.data(), all.size(), stream);
    stream.synchronize();
  }
  void set_fixed_quantization(std::vector<Quantization> fixed) override {
    require(std::ssize(fixed) == 4 * activations_.gelu_factors.shape[0],
            "quantizations of another number of inputs");
    activations_.fixed = std::move(fixed);
  }

  // ---- ParameterSource ----

  void acquire(int, int) override {}
  void release(int) override {}
  void gradients_ready(int) override {}
  WeightView weight(const ParameterSpec& spec) override {
    const Tensors& tensors = of(spec);
    if (!is_quantized(spec)) return {kDtypeOf<T>, tensors.values.data};
    return {Dtype::int8, tensors.codes.data, tensors.scales.data, tensors.sums.data};
  }
  float* gradient(const ParameterSpec&) override { return nullptr; }

 private:
  struct Tensors {
    Tensor<T, 1> values{};  // of a parameter that is not quantized
    Tensor<std::int8_t, 1> codes{};
    Tensor<float, 1> scales{};
    Tensor<std::int32_t, 1> sums{};
  };

  Tensors& of(const ParameterSpec& spec) { return tensors_[spec.id]; }

  const ParameterTable& table_;
  ActivationScales activations_;
  std::vector<Tensors>
      tensors_;  // by ParameterSpec::id; never resized, because the plan has pointers
};

}  // namespace llmc
