// All weights of a model as fp32 in host memory, by name: for work on a model before it is
// quantized.
#pragma once

#include <string>
#include <vector>

#include "llmc/models/loadable_weights.h"

namespace llmc {

class HostWeights final : public LoadableWeights {
 public:
  // `table`, of one rank, outlives the weights.
  explicit HostWeights(const ParameterTable& table)
      : table_(table), values_(table.specs().size()) {}

  const ParameterTable& table() const override { return table_; }

  void set_weight(const ParameterSpec& spec, const float* values, Stream&) override {
    values_[spec.id].assign(values, values + spec.size());
  }

  std::vector<float>& of(const std::string& name) { return values_[table_.find(name).id]; }
  const std::vector<float>& of(const ParameterSpec& spec) const { return values_[spec.id]; }

  void copy_to(LoadableWeights& weights, Stream& stream) const {
    for (const ParameterSpec& spec : table_.specs())
      weights.set_weight(spec, values_[spec.id].data(), stream);
  }

 private:
  const ParameterTable& table_;
  std::vector<std::vector<float>> values_;  // by ParameterSpec::id
};

}  // namespace llmc
