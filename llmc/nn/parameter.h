// A parameter of a layer: its row in the table, and the values and gradients of this rank's part of
// it as tensors.
#pragma once

#include <string>
#include <utility>

#include "llmc/nn/parameter_source.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/gemm/code_matrix.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

template <class T>
class Parameter {
 public:
  // `table` and `source` must outlive the parameter.
  Parameter(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : spec_(table.find(name)), source_(source) {}

  const ParameterSpec& spec() const { return spec_; }
  // ParameterSource::version().
  std::int64_t version() const { return source_.version(); }
  WeightView view() const { return source_.weight(spec_); }

  // Whether the values are INT8 codes, and these as the factor (K, N) of a product.
  bool has_codes() const { return view().dtype == Dtype::int8; }
  CodeMatrix codes() const {
    const WeightView view = this->view();
    const bool outputs_are_rows = spec_.axes.rows.front().name == AxisName::vocabulary;
    const auto [rows, columns] = std::pair(spec_.shape[0], spec_.shape[1]);
    return {static_cast<const std::int8_t*>(view.data), view.scales, view.sums,
            outputs_are_rows ? columns : rows, outputs_are_rows ? rows : columns};
  }

  // The values in the model's own dtype: a vector, or a matrix with its padding.
  Tensor<const T, 1> vector() const {
    return make_tensor(view().template as<T>(), spec_.part.shape[0]);
  }
  Tensor<const T, 2> matrix() const {
    return make_tensor(view().template as<T>(), spec_.part.stored_rows, spec_.part.shape[1]);
  }
  // The gradients have no data if the parameter is frozen.
  Tensor<float, 1> vector_gradient() const {
    return make_tensor(source_.gradient(spec_), spec_.part.shape[0]);
  }
  Tensor<float, 2> matrix_gradient() const {
    return make_tensor(source_.gradient(spec_), spec_.part.stored_rows, spec_.part.shape[1]);
  }
  bool has_gradient() const { return source_.has_gradient(spec_); }
  // The gradient for a product that adds to it, or writes it if it is the first one of the step.
  WeightGradient product_gradient() const {
    const bool begins = has_gradient() && source_.begins_gradient(spec_);
    return {matrix_gradient(), begins ? 0.0f : 1.0f};
  }

 private:
  const ParameterSpec& spec_;
  ParameterSource& source_;
};

}  // namespace llmc
