// The linear layer of a model. Weights of another dtype, low-rank adapters and tensor-parallel
// slices of linear layers belong here.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/model/context.h"
#include "llmc/model/parameter.h"
#include "llmc/ops/gemm/linear.h"

namespace llmc {

template <class T>
class Linear {
 public:
  // The layer with the parameters NAME.weight (K, N) and NAME.bias (N).
  Linear(const ParameterTable& table, const std::string& name, ParameterSource& source)
      : weight_(table, name + ".weight", source), bias_(table, name + ".bias", source) {}

  // out (rows, N) = inp (rows, K) · weight + bias.
  void forward(Tensor<T, 2> out, In<T, 2> inp, Context& context) const {
    linear_forward<T>(out, inp, weight_.matrix(), bias_.vector(), context.gemm, context.stream);
  }

  // Writes d_inp (rows, K) = d_out (rows, N) · weightᵀ, unless d_inp has no data. Adds to the
  // gradients of the parameters.
  void backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Context& context) const {
    linear_backward<T>(d_inp, weight_.matrix_gradient(), bias_.vector_gradient(), d_out, inp,
                       weight_.matrix(), context.scratch, context.gemm, context.stream);
  }

  // Number of floats in Context::scratch that backward() needs for this many rows.
  std::int64_t scratch_size(std::int64_t rows) const {
    return linear_backward_scratch(rows, bias_.spec().shape[0]);
  }

 private:
  Parameter<T> weight_, bias_;
};

}  // namespace llmc
