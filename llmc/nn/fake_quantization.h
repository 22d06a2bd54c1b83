// Quantization-aware training as layers see it: what the passes quantize now, and the buffers that
// all layers share. It is part of Context, so that training, evaluation and samples see the same
// model. The scales of a weight belong to its layer (quantized_weight.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/fake_quantize.h"

namespace llmc {

// A matrix (rows, columns) in device memory that a quantized pass has written.
struct ObservedMatrix {
  enum class Kind { input_codes, input_values, weight_codes, weight_values, sums };

  Kind kind = Kind::sums;
  const ParameterSpec& weight;  // of the layer
  Dtype dtype = Dtype::fp32;    // of the numbers; sums are fp32
  void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
};

// A test's access to quantized passes, which have none otherwise.
class QuantizationObserver {
 public:
  virtual ~QuantizationObserver() = default;
  // Called after the matrix is written and before it is read, in stream order. May change it.
  virtual void written(const ObservedMatrix& matrix, Stream& stream) = 0;
};

class FakeQuantization {
 public:
  FakeQuantization() = default;
  FakeQuantization(const FakeQuantization&) = delete;
  FakeQuantization& operator=(const FakeQuantization&) = delete;

  // Reserves memory for passes of this shape over the parameters of the table, whose numbers have
  // `element_size` bytes. Reserves nothing if shape.qat is none. Usable after plan.allocate().
  void reserve(const ParameterTable& table, const RunShape& shape, std::int64_t element_size,
               MemoryPlan& plan) {
    if (shape.qat == QatMode::none) return;
    is_reserved_ = true;
    const char* segment = "qat";
    const std::int64_t rows = shape.rows(), ranks = table.place().tensor_ranks;
    std::int64_t weight_size = 0, inputs = 0, sums = 0, magnitudes = 0;
    for (const ParameterSpec& spec : table.specs()) {
      if (!is_quantized(spec) || !spec.is_held) continue;
      weight_size = std::max(weight_size, spec.stored_size());
      if (spec.axes.rows.front().name == AxisName::vocabulary) {
        sums = std::max(sums, std::min(shape.chunk_rows(), kLogitRows) * spec.part.stored_rows);
        continue;
      }
      inputs = std::max(inputs, rows * spec.part.shape[0]);
      sums = std::max(sums, rows * spec.part.shape[1]);
      magnitudes =
          std::max(magnitudes, ranks * magnitude_parts(spec.part.shape[0]) * spec.part.shape[1]);
    }
    plan.reserve(segment, weights_, weight_size * element_size);
    plan.reserve(segment, magnitudes_, magnitudes);
    if (element_size < static_cast<std::int64_t>(sizeof(float))) plan.reserve(segment, sums_, sums);
    if (shape.qat == QatMode::w8) return;
    plan.reserve(segment, inputs_, inputs * element_size);
    plan.reserve(segment, quantizations_, rows);
    if (ranks > 1) plan.reserve(segment, ranges_, ranks * rows * 2);
  }

  // Sets the mode of all later passes. It needs reserved memory unless nothing is quantized.
  void set(const QuantizedPass& pass) {
    require(!pass.weights || is_reserved_, "quantized passes need a model that was built for them");
    require(!pass.activations || (pass.weights && quantizations_.size() > 0),
            "quantized activations need a model that was built for them, and quantized weights");
    pass_ = pass;
  }
  const QuantizedPass& pass() const { return pass_; }

  // For tests: calls `observer` from now on; null: nothing. The observer must outlive its use.
  void observe(QuantizationObserver* observer) { observer_ = observer; }
  template <class T>
  void report(ObservedMatrix::Kind kind, const ParameterSpec& weight, const Tensor<T, 2>& matrix,
              Stream& stream) const {
    if (observer_ == nullptr) return;
    const ObservedMatrix observed{.kind = kind,
                                  .weight = weight,
                                  .dtype = kDtypeOf<T>,
                                  .data = matrix.data,
                                  .rows = matrix.shape[0],
                                  .columns = matrix.shape[1]};
    observer_->written(observed, stream);
  }

  // ---- buffers, each valid until the next layer uses it ----

  template <class T>
  Tensor<T, 2> weights(std::int64_t rows, std::int64_t columns) const {
    return {reinterpret_cast<T*>(weights_.data), {rows, columns}};
  }
  template <class T>
  Tensor<T, 2> inputs(std::int64_t rows, std::int64_t columns) const {
    return {reinterpret_cast<T*>(inputs_.data), {rows, columns}};
  }
  Tensor<Quantization, 1> quantizations(std::int64_t rows) const {
    return make_tensor(quantizations_.data, rows);
  }
  Tensor<float, 3> ranges(std::int64_t ranks, std::int64_t rows) const {
    return make_tensor(ranges_.data, ranks, rows, 2);
  }
  Tensor<float, 3> magnitudes(std::int64_t ranks, std::int64_t parts, std::int64_t columns) const {
    return make_tensor(magnitudes_.data, ranks, parts, columns);
  }
  // The fp32 sums of the product `out`: its own memory if that is fp32.
  template <class T>
  Tensor<float, 2> sums(const Tensor<T, 2>& out) const {
    if constexpr (std::is_same_v<T, float>) {
      return out;
    } else {
      return {sums_.data, {out.shape[0], out.shape[1]}};
    }
  }
  // Rows of logits whose sums fit the buffer; more are computed in several products.
  template <class T>
  static std::int64_t rows_of_logits(std::int64_t rows) {
    return std::is_same_v<T, float> ? rows : std::min(rows, kLogitRows);
  }

 private:
  static constexpr std::int64_t kLogitRows = 512;

  QuantizedPass pass_;
  QuantizationObserver* observer_ = nullptr;
  bool is_reserved_ = false;
  Tensor<unsigned char, 1> weights_, inputs_;  // of the dtype of the model
  Tensor<float, 1> sums_, magnitudes_, ranges_;
  Tensor<Quantization, 1> quantizations_;
};

}  // namespace llmc
