#include <unistd.h>

#include <cstdint>
#include <utility>

#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/quantized_files.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/models/int8_layout.h"
#include "llmc/models/round_weight.h"
#include "llmc/quantize/quantized_tensors.h"

namespace llmc {

void QuantizedTensors::set_weight(const ParameterSpec& spec, const float* values, Stream&) {
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

void QuantizedTensors::set_scales(const CalibratedScales& scales) {
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

void QuantizedTensors::write(const std::filesystem::path& path) const {
  const std::vector<Item> items = this->items();
  std::vector<TensorHeader> headers;
  for (const Item& item : items) headers.push_back(item.header);
  SafetensorsWriter writer(path, huggingface_tensors(std::move(headers)));
  for (std::size_t i = 0; i < items.size(); ++i) {
    writer.write(writer.tensors()[i].name, items[i].bytes);
  }
  writer.finish();
}

std::vector<QuantizedTensors::Item> QuantizedTensors::items() const {
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

}  // namespace llmc
