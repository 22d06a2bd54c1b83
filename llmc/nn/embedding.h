// The sum of token and position embeddings, where the residual stream begins. The vocabulary may be
// split over the ranks of a tensor group: each adds the rows whose tokens it has.
#pragma once

#include "llmc/nn/context.h"
#include "llmc/nn/device_batch.h"
#include "llmc/nn/parameter.h"
#include "llmc/nn/quantized_weight.h"
#include "llmc/nn/weight_values.h"
#include "llmc/ops/embedding.h"

namespace llmc {

// The rows of a matrix, one per token or label, that this rank has.
inline VocabularySlice rows_of_rank(const ParameterTable& table, const ParameterSpec& spec) {
  const AxisPiece piece = spec.axes.rows.front().piece(table.place());
  return {piece.begin, piece.begin + piece.size};
}

template <class T>
class Embedding {
 public:
  Embedding(const ParameterTable& table, ParameterSource& source)
      : slice_(rows_of_rank(table, table.find("wte.weight"))),
        wte_(table, "wte.weight", source),
        wpe_(table, "wpe.weight", source),
        quantized_(wte_, ScaleAxis::rows) {}

  // Reserves what quantized passes need. The layer must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) { quantized_.reserve(plan); }

  const Parameter<T>& tokens() const { return wte_; }
  const Parameter<T>& positions() const { return wpe_; }

  // Writes out (own rows, C). In a quantized pass, with the numbers that the codes of the tokens'
  // embeddings stand for; positions are not quantized.
  void forward(Tensor<T, 2> out, const DeviceBatch& batch, Context& context) const {
    const Tensor<T, 2> partial = context.tensor.partial_sums(out, batch.rows());
    Tensor<const float, 1> scales;
    if (context.quantization.pass().weights) scales = quantized_.scales(context);
    embedding_forward<T>(partial, batch.tokens, weight_values(wte_, context), wpe_.matrix(),
                         batch.T, slice_, context.stream, batch.first_position, scales);
    context.outputs.rows("embedding forward", wte_.spec().name, partial, context.stream);
    context.tensor.reduce(out, partial, context.stream);
  }

  // Adds to the gradients of wte and wpe; d_out (own rows, C). To that of wpe it adds only the sums
  // of the rank's own rows.
  void backward(In<T, 2> d_out, const DeviceBatch& batch, Context& context) const {
    const ProfileScope scope("embedding backward", context.stream);
    if (wte_.has_gradient()) {
      const In<T, 2> all = context.tensor.gather<T>(d_out, batch.rows(), context.stream);
      token_embedding_backward<T>(wte_.matrix_gradient(), all, batch.buckets, slice_,
                                  context.stream);
      context.outputs.sum("embedding backward", wte_.spec().name, wte_.matrix_gradient(),
                          context.stream);
    }
    position_embedding_backward<T>(wpe_.matrix_gradient(), d_out,
                                   context.tensor.rows_of_rank(batch.rows()).first, batch.T,
                                   context.stream);
    context.outputs.sum("embedding backward", wpe_.spec().name, wpe_.matrix_gradient(),
                        context.stream);
  }

 private:
  VocabularySlice slice_;
  Parameter<T> wte_, wpe_;
  QuantizedWeight<T> quantized_;
};

}  // namespace llmc
