// The weights of a model in device memory: one array laid out by the parameter table. All that
// running a model needs; what training keeps beside them is in train/training_state.h.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/model/memory_plan.h"
#include "llmc/model/parameter_source.h"
#include "llmc/model/parameters.h"

namespace llmc {

template <class T>
class Weights {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `table` outlives the weights.
  Weights(const ParameterTable& table, MemoryPlan& plan) : table_(table) {
    plan.reserve("weights", values_, table.stored_size());
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // After plan.allocate(): everything zero, gaps and padding too, which stay so.
  void clear(Stream& stream) { fill_zero(values_.data, values_.size(), stream); }

  // Rounds spec.size() fp32 numbers to T; the copy is finished on return.
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) {
    if constexpr (std::is_same_v<T, float>) {
      copy_to_device(of(spec), values, spec.size(), stream);
      stream.synchronize();
    } else {
      std::vector<T> rounded(static_cast<std::size_t>(spec.size()));
      for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = from_float<T>(values[i]);
      copy_to_device(of(spec), rounded.data(), spec.size(), stream);
      stream.synchronize();
    }
  }

  const ParameterTable& table() const { return table_; }
  T* data() const { return values_.data; }
  T* of(const ParameterSpec& spec) const { return values_.data + spec.offset; }

  const Tensor<T, 1>& values() const { return values_; }

  // As a model reads them, without gradients.
  ParameterSource& source() { return source_; }

 private:
  const ParameterTable& table_;
  Tensor<T, 1> values_;
  ResidentParameters<T> source_{values_, nullptr};
};

}  // namespace llmc
