// The parameters of each layer of a GPT-2, found in the table once, and a parameter as a tensor.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/tensor.h"
#include "llmc/model/parameter_source.h"
#include "llmc/model/parameters.h"

namespace llmc {

struct NormSpecs {
  const ParameterSpec &weight, &bias;
};
struct LinearSpecs {
  const ParameterSpec &weight, &bias;
};
struct BlockSpecs {
  NormSpecs ln_1;
  LinearSpecs qkv, attention_out;
  NormSpecs ln_2;
  LinearSpecs mlp_in, mlp_out;
};

inline NormSpecs norm_specs(const ParameterTable& table, const std::string& name) {
  return {table.find(name + ".weight"), table.find(name + ".bias")};
}
inline LinearSpecs linear_specs(const ParameterTable& table, const std::string& name) {
  return {table.find(name + ".weight"), table.find(name + ".bias")};
}
inline BlockSpecs block_specs(const ParameterTable& table, std::int64_t l) {
  const std::string h = "h." + std::to_string(l) + ".";
  return {norm_specs(table, h + "ln_1"),          linear_specs(table, h + "attn.c_attn"),
          linear_specs(table, h + "attn.c_proj"), norm_specs(table, h + "ln_2"),
          linear_specs(table, h + "mlp.c_fc"),    linear_specs(table, h + "mlp.c_proj")};
}

// Vectors, and matrices with their padding, where the source has them now.
template <class T>
Tensor<const T, 1> weight(ParameterSource<T>& source, const ParameterSpec& spec) {
  return make_tensor(source.weight(spec), spec.shape[0]);
}
template <class T>
Tensor<const T, 2> weight2(ParameterSource<T>& source, const ParameterSpec& spec) {
  return make_tensor(source.weight(spec), spec.stored_rows, spec.shape[1]);
}
template <class T>
Tensor<float, 1> gradient(ParameterSource<T>& source, const ParameterSpec& spec) {
  return make_tensor(source.gradient(spec), spec.shape[0]);
}
template <class T>
Tensor<float, 2> gradient2(ParameterSource<T>& source, const ParameterSpec& spec) {
  return make_tensor(source.gradient(spec), spec.stored_rows, spec.shape[1]);
}

}  // namespace llmc
