// The INT8 codes of the frozen matrices of a model that adapters train on (--base-quant w8): those
// of `infer_gpt2 quantize`, symmetric with a scale per output. Every rank has all of them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "llmc/models/int8_layout.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

class BaseCodes {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). Nothing without codes in the table.
  // The object must not move before that.
  BaseCodes(const ParameterTable& table, Context& context, MemoryPlan& plan) : context_(context) {
    for (const ParameterSpec& spec : table.specs()) {
      if (!spec.is_code || !spec.is_held) continue;
      Tensors& tensors = tensors_[spec.id];
      plan.reserve("INT8 weights", tensors.codes, spec.stored_size());
      plan.reserve("INT8 weights", tensors.scales, outputs_of(spec, spec.part.stored_rows));
    }
  }
  BaseCodes(const BaseCodes&) = delete;
  BaseCodes& operator=(const BaseCodes&) = delete;

  void clear(Stream& stream) {
    for (auto& [id, tensors] : tensors_) {
      fill_zero(tensors.codes.data, tensors.codes.size(), stream);
      fill_zero(tensors.scales.data, tensors.scales.size(), stream);
    }
  }

  // Quantizes spec.size() values. Finished on return.
  void set(const ParameterSpec& spec, const float* values, Stream& stream) {
    const WeightCodes weight =
        quantize_weight(values, spec.shape[0], spec.shape[1], output_axis(spec), spec.name);
    Tensors& tensors = tensors_.at(spec.id);
    copy_to_device(tensors.codes.data, weight.codes.data(),
                   static_cast<std::int64_t>(weight.codes.size()), stream);
    copy_to_device(tensors.scales.data, weight.scales.data(),
                   static_cast<std::int64_t>(weight.scales.size()), stream);
    stream.synchronize();
    context_.adapters.forget();
  }

  // Writes the spec.size() values that the codes stand for.
  void get(const ParameterSpec& spec, float* values, Stream& stream) const {
    const Tensors& tensors = tensors_.at(spec.id);
    std::vector<std::int8_t> codes(static_cast<std::size_t>(spec.size()));
    std::vector<float> scales(static_cast<std::size_t>(outputs_of(spec, spec.shape[0])));
    copy_to_host(codes.data(), tensors.codes.data, spec.size(), stream);
    copy_to_host(scales.data(), tensors.scales.data, static_cast<std::int64_t>(scales.size()),
                 stream);
    stream.synchronize();
    const std::int64_t columns = spec.shape[1];
    const bool has_rows = output_axis(spec) == OutputAxis::rows;
    for (std::int64_t i = 0; i < spec.size(); ++i) {
      values[i] = scales[has_rows ? i / columns : i % columns] * static_cast<float>(codes[i]);
    }
  }

  WeightView view(const ParameterSpec& spec) const {
    const Tensors& tensors = tensors_.at(spec.id);
    return {Dtype::int8, tensors.codes.data, tensors.scales.data};
  }

 private:
  struct Tensors {
    Tensor<std::int8_t, 1> codes;
    Tensor<float, 1> scales;
  };

  static std::int64_t outputs_of(const ParameterSpec& spec, std::int64_t rows) {
    return output_axis(spec) == OutputAxis::rows ? rows : spec.shape[1];
  }

  Context& context_;
  std::map<std::uint32_t, Tensors> tensors_;  // by ParameterSpec::id; a map keeps addresses
};

}  // namespace llmc
