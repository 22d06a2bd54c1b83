// Memory that the adapters of all layers share, each part valid until the next layer uses it. It is
// part of Context.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/dequantize.h"

namespace llmc {

class AdapterBuffers {
 public:
  AdapterBuffers() = default;
  AdapterBuffers(const AdapterBuffers&) = delete;
  AdapterBuffers& operator=(const AdapterBuffers&) = delete;

  // Reserves memory for passes of this shape, in numbers of `size` bytes; nothing without adapters.
  // Usable after plan.allocate().
  void reserve(const ParameterTable& table, const RunShape& shape, std::int64_t size,
               MemoryPlan& plan) {
    if (shape.adapters.kind == AdapterKind::none) return;
    const std::int64_t ranks = table.place().tensor_ranks;
    const bool is_spread = shape.uses_sequence_parallelism(ranks);
    const std::int64_t own = is_spread ? ceil_div(shape.rows(), ranks) : shape.rows();
    const bool copies_inputs =
        shape.adapters.kind == AdapterKind::ia3 || shape.adapters.dropout > 0;
    std::int64_t inputs = 0, rank = 0;
    for (const ParameterSpec& spec : table.specs()) {
      if (!spec.is_held || !spec.is_adapter) continue;
      const bool is_vector = spec.axes.columns.empty();
      if (!is_vector) rank = std::max(rank, spec.part.stored_rows);
      std::int64_t columns = spec.part.row_size() * (is_vector ? spec.part.shape[0] : 1);
      // A vector of keys and values belongs to rows that also have queries.
      const bool has_parts = spec.axes.rows.front().name == AxisName::parts;
      if (has_parts && shape.adapters.fixes_query) columns = columns / 2 * 3;
      inputs = std::max(inputs, columns);
    }
    const char* segment = "adapter buffers";
    plan.reserve(segment, inputs_, copies_inputs ? shape.rows() * inputs * size : 0);
    plan.reserve(segment, hidden_, (is_spread ? ranks * own : own) * rank * size);
    plan.reserve(segment, own_hidden_, is_spread ? own * rank * size : 0);
    std::int64_t largest = 0;
    for (const ParameterSpec& spec : table.specs()) {
      if (spec.is_code && spec.is_held) largest = std::max(largest, spec.stored_size());
    }
    if (largest > 0) plan.reserve("dequantized weight", dequantized_, largest * size);
  }

  // The matrix (rows, columns) that the codes of a weight stand for, valid until that of another
  // weight is needed. Codes do not change, so the one that is there stays.
  template <class T>
  Tensor<const T, 2> dequantized(const WeightView& weight, std::int64_t rows, std::int64_t columns,
                                 ScaleAxis axis, Stream& stream) {
    const Tensor<T, 2> out = {reinterpret_cast<T*>(dequantized_.data), {rows, columns}};
    if (present_ == weight.data) return out;
    present_ = weight.data;
    const std::int64_t outputs = axis == ScaleAxis::rows ? rows : columns;
    dequantize<T>(out, make_tensor(static_cast<const std::int8_t*>(weight.data), rows, columns),
                  make_tensor(weight.scales, outputs), axis, stream);
    return out;
  }
  // Codes have changed.
  void forget() { present_ = nullptr; }

  // Changed inputs of a layer, or gradients of its outputs.
  template <class T>
  Tensor<T, 2> inputs(std::int64_t rows, std::int64_t columns) const {
    return {reinterpret_cast<T*>(inputs_.data), {rows, columns}};
  }
  // Products with A or B, or their gradients: of all rows, and of those of this rank.
  template <class T>
  Tensor<T, 2> hidden(std::int64_t rows, std::int64_t rank) const {
    return {reinterpret_cast<T*>(hidden_.data), {rows, rank}};
  }
  template <class T>
  Tensor<T, 2> own_hidden(std::int64_t rows, std::int64_t rank) const {
    return {reinterpret_cast<T*>(own_hidden_.data), {rows, rank}};
  }

 private:
  Tensor<unsigned char, 1> inputs_, hidden_, own_hidden_, dequantized_;
  const void* present_ = nullptr;  // the codes of the dequantized weight
};

}  // namespace llmc
