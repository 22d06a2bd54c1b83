// The sum of token and position embeddings, where the residual stream begins.
#pragma once

#include "llmc/model/context.h"
#include "llmc/model/device_batch.h"
#include "llmc/model/parameter.h"
#include "llmc/ops/embedding.h"

namespace llmc {

template <class T>
class Embedding {
 public:
  Embedding(const ParameterTable& table, ParameterSource& source)
      : wte_(table, "wte.weight", source), wpe_(table, "wpe.weight", source) {}

  // Writes out (B*T, C).
  void forward(Tensor<T, 2> out, const DeviceBatch& batch, Context& context) const {
    embedding_forward<T>(out, batch.tokens, wte_.matrix(), wpe_.matrix(), batch.first_position,
                         batch.T, context.stream);
  }

  // Adds to the gradients of wte and wpe; d_out (B*T, C).
  void backward(In<T, 2> d_out, const DeviceBatch& batch, Context& context) const {
    embedding_backward<T>(wte_.matrix_gradient(), wpe_.matrix_gradient(), d_out, batch.buckets,
                          batch.T, context.stream);
  }

 private:
  Parameter<T> wte_, wpe_;
};

}  // namespace llmc
