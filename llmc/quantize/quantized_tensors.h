// The tensors of a model with INT8 weights in host memory, for files. load_weights() fills it with
// the float tensors of a model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "llmc/quantize/calibrated_scales.h"

namespace llmc {

class QuantizedTensors final : public LoadableWeights {
 public:
  // `table`, of one rank, outlives the tensors. Parameters that are not quantized are in `dtype`.
  QuantizedTensors(const ParameterTable& table, Dtype dtype)
      : table_(table), dtype_(dtype), tensors_(table.specs().size()) {}

  const ParameterTable& table() const override { return table_; }

  // Rounds to the dtype, and quantizes the result if the parameter is quantized.
  void set_weight(const ParameterSpec& spec, const float* values, Stream&) override;

  // Sets the tensors of files that belong to activations.
  void set_scales(const CalibratedScales& scales);

  // Writes a safetensors file: scales, float tensors, codes. In this order all are aligned.
  void write(const std::filesystem::path& path) const;

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

  std::vector<Item> items() const;

  const ParameterTable& table_;
  Dtype dtype_;
  std::vector<Tensors> tensors_;  // by ParameterSpec::id
  std::vector<Extra> extras_;
};

}  // namespace llmc
