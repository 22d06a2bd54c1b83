// A matrix as products read it in training: its values, or the numbers that its codes stand for.
#pragma once

#include "llmc/nn/context.h"
#include "llmc/nn/parameter.h"

namespace llmc {

// (stored rows, columns). A dequantized matrix is in memory that all weights share: it is valid
// until another one is needed.
template <class T>
Tensor<const T, 2> weight_values(const Parameter<T>& weight, Context& context) {
  if (!weight.has_codes()) return weight.matrix();
  const ParameterSpec& spec = weight.spec();
  const bool has_tokens = spec.axes.rows.front().name == AxisName::vocabulary;
  return context.adapters.template dequantized<T>(
      weight.view(), spec.part.stored_rows, spec.part.shape[1],
      has_tokens ? ScaleAxis::rows : ScaleAxis::columns, context.stream);
}

}  // namespace llmc
