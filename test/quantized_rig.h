// Small models with INT8 weights in files, and changes of their files, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/infer/quantize_command.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/pretrained.h"
#include "llmc/models/weights.h"
#include "test/support.h"
#include "test/write_file.h"

namespace llmc_test {

using namespace llmc;
namespace fs = std::filesystem;

inline const ModelConfig kInt8Config = {
    .vocabulary = 37, .context = 9, .layers = 2, .heads = 3, .channels = 24};

// Writes a float model with random weights.
inline void write_float_model(const fs::path& path) {
  const ParameterTable table = gpt2_parameters(kInt8Config);
  std::vector<TensorHeader> headers;
  for (const ParameterSpec& spec : table.specs()) {
    headers.push_back({spec.name, TensorDtype::f32, spec.shape});
  }
  std::vector<float> values;
  write_huggingface(path, to_huggingface(kInt8Config, 36), headers, [&](std::size_t i) {
    values = random_floats(table.specs()[i].size(), 100 + i, 0.1);
    return std::as_bytes(std::span(values));
  });
}

template <class T>
void quantize_files(const fs::path& from, const fs::path& to, Quant quant = Quant::w8a8,
                    ZeroPoints zero_points = ZeroPoints::automatic) {
  InferConfig settings{};
  settings.command = {"quantize", from.string(), to.string()};
  settings.dtype = kDtypeOf<T>;
  settings.quant = quant;
  settings.zero_points = zero_points;
  Notice::set_quiet(true);
  quantize_model(settings);
  Notice::set_quiet(false);
}

// Weights in memory that were loaded from a path.
template <class T>
struct Loaded {
  Stream stream;
  ParameterTable table = gpt2_parameters(kInt8Config);
  MemoryPlan plan;
  Weights<T> weights;

  explicit Loaded(const fs::path& path, bool int8 = true) : weights(table, plan, int8) {
    plan.allocate();
    weights.clear(stream);
    load_weights(path, weights, stream);
  }

  // All bytes of a parameter: of the codes, scales and sums if it is quantized.
  std::vector<std::vector<std::byte>> bytes(const ParameterSpec& spec) {
    const WeightView view = weights.source().weight(spec);
    const auto copy = [&](const void* data, std::int64_t size) {
      return download(static_cast<const std::byte*>(data), size, stream);
    };
    if (!is_quantized(spec)) {
      return {copy(view.data, spec.size() * static_cast<std::int64_t>(sizeof(T)))};
    }
    const WeightShape shape = weight_shape(spec);
    return {copy(view.data, code_bytes(shape.K, shape.N)),
            copy(view.scales, shape.N * static_cast<std::int64_t>(sizeof(float))),
            copy(view.sums, shape.N * static_cast<std::int64_t>(sizeof(std::int32_t)))};
  }
};

// A tensor of a file with its bytes, for changes.
struct StoredTensor {
  TensorHeader header;
  std::vector<std::byte> bytes;

  template <class V>
  void set(std::size_t i, V value) {
    std::memcpy(bytes.data() + i * sizeof(V), &value, sizeof(V));
  }
};
using StoredTensors = std::map<std::string, StoredTensor>;

// Changes the tensors of a directory's weights. Keeps the order of dtypes that files have.
inline void change_tensors(const fs::path& directory,
                           const std::function<void(StoredTensors&)>& change) {
  StoredTensors tensors;
  {
    const SafetensorsFile file(directory / kWeightsName);
    for (const TensorEntry& tensor : file.tensors()) {
      const MappedFile map = file.map(tensor);
      tensors[tensor.name] = {tensor, {map.bytes().begin(), map.bytes().end()}};
    }
  }
  change(tensors);
  std::vector<TensorHeader> headers;
  for (const std::int64_t width : {4, 2, 1}) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor_dtype_bytes(tensor.header.dtype) != width) continue;
      headers.push_back(tensor.header);
      headers.back().name = name;
    }
  }
  SafetensorsWriter writer(directory / kWeightsName, headers);
  for (const TensorHeader& header : headers) writer.write(header.name, tensors[header.name].bytes);
  writer.finish();
}

inline void replace_in_config(const fs::path& directory, const std::string& from,
                              const std::string& to) {
  std::string text = read_file(directory / kConfigName);
  const std::size_t at = text.find(from);
  REQUIRE(at != text.npos);
  write((directory / kConfigName).string(), text.replace(at, from.size(), to));
}

}  // namespace llmc_test
