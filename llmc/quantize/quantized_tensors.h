// The tensors of a model with INT8 weights in host memory, for files. load_weights() fills it with
// the float tensors of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/quantized_files.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/model/int8_layout.h"
#include "llmc/model/loadable_weights.h"
#include "llmc/model/round_weight.h"
#include "llmc/quantize/calibrated_scales.h"

namespace llmc {

class QuantizedTensors final : public LoadableWeights {
 public:
  // `table`, of one rank, outlives the tensors. Parameters that are not quantized are in `dtype`.
  QuantizedTensors(const ParameterTable& table, Dtype dtype)
      : table_(table), dtype_(dtype), tensors_(table.specs().size()) {}

  const ParameterTable& table() const override { return table_; }

  // Rounds to the dtype, and quantizes the result if the parameter is quantized.
  void set_weight(const ParameterSpec& spec, const float* values, Stream&) override {
    Tensors& tensors = tensors_[spec.id];
    dispatch_dtype(dtype_, [&]<class T>() {
      const std::vector<T> rounded = round_weight<T>(spec, values);
      if (is_quantized(spec)) {
        tensors.quantized = quantize_parameter<T>(spec, rounded);
      } else {
        const auto bytes = std::as_bytes(std::span(rounded));
        tensors.values.assign(bytes.begin(), bytes.end());
      }
    });
  }

  // Sets the tensors of files that belong to activations.
  void set_scales(const CalibratedScales& scales) {
    const std::vector<std::string> layers = linear_layers(table_);
    for (std::size_t i = 0; i < scales.fixed.size(); ++i) {
      add_extra(input_scale_name(layers[i]), TensorDtype::f32, scales.fixed[i].scale);
      add_extra(input_zero_point_name(layers[i]), TensorDtype::i8,
                static_cast<std::int8_t>(scales.fixed[i].zero));
    }
    const std::size_t hidden = scales.gelu_factors.size() * 4 / layers.size();
    for (std::size_t i = 3, l = 0; !scales.gelu_factors.empty() && i < layers.size(); i += 4, ++l) {
      const auto own = std::as_bytes(std::span(scales.gelu_factors).subspan(l * hidden, hidden));
      extras_.push_back(
          {{input_smoothing_name(layers[i]), TensorDtype::f32, {static_cast<std::int64_t>(hidden)}},
           {own.begin(), own.end()}});
    }
  }

  // Writes a safetensors file: scales, float tensors, codes. In this order all are aligned.
  void write(const std::filesystem::path& path) const {
    const std::vector<Item> items = this->items();
    std::vector<TensorHeader> headers;
    for (const Item& item : items) headers.push_back(item.header);
    SafetensorsWriter writer(path, huggingface_tensors(std::move(headers)));
    for (std::size_t i = 0; i < items.size(); ++i) {
      writer.write(writer.tensors()[i].name, items[i].bytes);
    }
    writer.finish();
  }

 private:
  struct Tensors {
    std::vector<std::byte> values{};  // of a parameter that is not quantized
    WeightCodes quantized{};
  };
  struct Item {
    TensorHeader header;
    std::span<const std::byte> bytes;
  };
  struct Extra {
    TensorHeader header;
    std::vector<std::byte> bytes;
  };

  template <class Number>
  void add_extra(const std::string& name, TensorDtype dtype, const Number& number) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    extras_.push_back({{name, dtype, {1}}, {bytes.begin(), bytes.end()}});
  }

  std::vector<Item> items() const {
    std::vector<Item> scales, floats, codes;
    for (const ParameterSpec& spec : table_.specs()) {
      const Tensors& tensors = tensors_[spec.id];
      if (!is_quantized(spec)) {
        floats.push_back({{spec.name, tensor_dtype(dtype_), spec.shape}, tensors.values});
        continue;
      }
      scales.push_back(
          {{scale_name(spec.name), TensorDtype::f32, scale_shape(spec.shape, output_axis(spec))},
           std::as_bytes(std::span(tensors.quantized.scales))});
      codes.push_back({{spec.name, TensorDtype::i8, spec.shape},
                       std::as_bytes(std::span(tensors.quantized.codes))});
    }
    for (const Extra& extra : extras_) {
      (extra.header.dtype == TensorDtype::i8 ? codes : scales)
          .push_back({extra.header, std::span(extra.bytes)});
    }
    for (const auto* more : {&floats, &codes}) {
      scales.insert(scales.end(), more->begin(), more->end());
    }
    return scales;
  }

  const ParameterTable& table_;
  Dtype dtype_;
  std::vector<Tensors> tensors_;  // by ParameterSpec::id
  std::vector<Extra> extras_;
};

}  // namespace llmc
