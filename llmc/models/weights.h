// The weights of a model in device memory: one array laid out by the parameter table. Inference
// needs nothing else; what training needs in addition is in parallel/training_state.h.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/models/int8_weights.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/models/round_weight.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

template <class T>
class Weights final : public LoadableWeights {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `table` outlives the weights. INT8
  // weights are those of int8_weights.h.
  Weights(const ParameterTable& table, MemoryPlan& plan, bool int8 = false) : table_(table) {
    if (int8) {
      quantized_ = std::make_unique<Int8Weights<T>>(table, plan);
    } else {
      plan.reserve("weights", values_, table.stored_size());
    }
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Sets everything to zero, including gaps and padding, which stay zero. Call after
  // plan.allocate().
  void clear(Stream& stream) {
    if (values_.size() > 0) fill_zero(values_.data, values_.size(), stream);
  }

  // Rounds to T, and to codes if INT8 weights have the parameter as codes.
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) override {
    if (quantized_ != nullptr) {
      quantized_->set_weight(spec, values, stream);
    } else if constexpr (std::is_same_v<T, float>) {
      copy_to_device(values_of(spec), values, spec.size(), stream);
      stream.synchronize();
    } else {
      const std::vector<T> rounded = round_weight<T>(spec, values);
      copy_to_device(values_of(spec), rounded.data(), spec.size(), stream);
      stream.synchronize();
    }
  }

  Int8Weights<T>* quantized() override { return quantized_.get(); }

  // Bytes of a parameter in memory, without padding.
  std::int64_t bytes_of(const ParameterSpec& spec) const {
    if (quantized_ == nullptr || !is_quantized(spec))
      return spec.size() * static_cast<std::int64_t>(sizeof(T));
    constexpr std::int64_t kBytesPerOutput = sizeof(float) + sizeof(std::int32_t);
    return spec.size() + weight_shape(spec).N * kBytesPerOutput;
  }

  const ParameterTable& table() const override { return table_; }
  T* data() const { return values_.data; }
  T* values_of(const ParameterSpec& spec) const { return values_.data + spec.offset; }

  const Tensor<T, 1>& values() const { return values_; }

  // The source from which a model reads the weights; it has no gradients.
  ParameterSource& source() {
    if (quantized_ != nullptr) return *quantized_;
    return source_;
  }

 private:
  const ParameterTable& table_;
  Tensor<T, 1> values_;
  std::unique_ptr<Int8Weights<T>> quantized_;
  ResidentParameters<T> source_{values_, nullptr};
};

}  // namespace llmc
