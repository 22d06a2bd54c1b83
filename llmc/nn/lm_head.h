// The language-model head: logits = hidden · weightᵀ, and the cross-entropy of the targets. The
// weight (V, C) is wte, or lm_head.weight if the head is not tied to the embeddings. Only a chunk
// of rows of logits exists at a time: a chunk's losses and gradients are computed before the next
// chunk replaces it.
//
// The head of a classifier is the same with score.weight (labels, C) in place of wte. Of each
// sequence, only the row of the last token has a target, its label. The few logits of the other
// rows cost less than collecting these rows.
//
// The vocabulary may be split over the ranks of a tensor group. Each rank then has the logits of
// its own tokens, which are never gathered: three numbers per row are (classifier_slices.h), and
// every rank computes the same losses from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "llmc/device/rows.h"
#include "llmc/nn/context.h"
#include "llmc/nn/embedding.h"
#include "llmc/nn/linear_product.h"
#include "llmc/nn/logits_buffers.h"
#include "llmc/nn/parameter.h"
#include "llmc/nn/pass_options.h"
#include "llmc/nn/quantized_weight.h"
#include "llmc/nn/weight_values.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/classifier_slices.h"

namespace llmc {

template <class T>
class LmHead {
 public:
  LmHead(const ParameterTable& table, ParameterSource& source)
      : slice_(rows_of_rank(table, table.head())),
        weight_(table, table.head().name, source),
        name_(table.head().block == kEmbeddingBlock ? "lm_head.weight" : table.head().name),
        quantized_(weight_, ScaleAxis::rows) {}

  // Reserves what quantized passes need. The layer must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) { quantized_.reserve(plan); }

  // Numbers in a row of this rank's logits: one per row of its weight, which is padded.
  std::int64_t logit_columns() const { return weight_.spec().part.stored_rows; }

  const Parameter<T>& weight() const { return weight_; }

  // The product in inference, of a model on one rank: the logits of x (rows, C), without padding.
  InvariantGemm<T> inference(In<T, 2> x) const {
    InvariantGemm<T> product = inference_product<T>(x, weight_);
    if (product.weight.data != nullptr) product.weight = first_rows(product.weight, slice_.end);
    return product;
  }

  // Returns the logits of one row, of which `hidden` (1, C) is the same on all ranks. Number i is
  // the logit of token i; those from V on are padding.
  Tensor<const T, 1> logits_of_row(const LogitsBuffers<T>& buffers, In<T, 2> hidden,
                                   Context& context) const {
    TensorGroup& group = context.tensor;
    const std::int64_t columns = logit_columns();
    if (group.ranks() == 1) {
      return make_tensor(logits_of_rows(buffers, hidden, context).data, columns);
    }
    const Tensor<T, 1> all = buffers.row_logits();
    const Tensor<T, 1> own = row_range(all, group.rank() * columns, columns);
    logits({own.data, {1, columns}}, hidden, context);
    group.all_gather<T>(all, own, context.stream);
    return all;
  }

  // Returns the logits (rows, columns) of `hidden` (rows, C), for at most as many rows as a chunk
  // has. Only for a model on one rank. Numbers from V on in a row are padding.
  Tensor<const T, 2> logits_of_rows(const LogitsBuffers<T>& buffers, In<T, 2> hidden,
                                    Context& context) const {
    require(context.tensor.ranks() == 1, "the logits of several rows need a model on one rank");
    require(hidden.shape[0] <= buffers.logits().shape[0], "more rows of logits than a chunk has");
    const Tensor<T, 2> rows = first_rows(buffers.logits(), hidden.shape[0]);
    logits(rows, hidden, context);
    return rows;
  }

  // Writes losses (rows) from hidden (own rows, C) and targets (rows).
  void losses(Tensor<float, 1> losses, const LogitsBuffers<T>& buffers, In<T, 2> hidden,
              In<std::int32_t, 1> targets, Context& context) const {
    Stream& stream = context.stream;
    const In<T, 2> all = context.tensor.gather<T>(hidden, losses.size(), stream);
    for_each_chunk(buffers, losses, all, targets, context, [&](const Chunk& chunk) {
      if (context.tensor.ranks() == 1) {
        classifier_loss<T>(chunk.losses, chunk.logits, chunk.targets, slice_.end, stream);
        return;
      }
      classifier_loss_from_statistics(chunk.losses, chunk.targets,
                                      statistics(buffers, chunk, context), stream);
    });
  }

  // Like losses(), but also writes d_hidden (own rows, C) and adds to the gradient of the weight.
  void backward(Tensor<T, 2> d_hidden, Tensor<float, 1> losses, const LogitsBuffers<T>& buffers,
                In<T, 2> hidden, In<std::int32_t, 1> targets, const LossOptions& loss,
                Context& context) const {
    Stream& stream = context.stream;
    TensorGroup& group = context.tensor;
    const std::int64_t rows = losses.size();
    const In<T, 2> all = group.gather<T>(hidden, rows, stream);
    // May be the memory of `all`: the gradients of a chunk replace hidden states that are not read
    // any more.
    const Tensor<T, 2> partial = group.partial_sums(d_hidden, rows);
    for_each_chunk(buffers, losses, all, targets, context, [&](const Chunk& chunk) {
      write_gradients(chunk, buffers, loss, context);
      add_products(row_range(partial, chunk.first, chunk.count), chunk, context);
    });
    group.reduce(d_hidden, partial, stream);
    sum_losses(loss.sum, losses, loss.scale, stream);
    context.outputs.sum("sum of losses", name_, loss.sum, stream);
  }

 private:
  struct Chunk {
    std::int64_t first, count;
    Tensor<T, 2> logits;                    // (count, columns)
    Tensor<float, 1> losses;                // (count)
    Tensor<const T, 2> hidden;              // (count, C)
    Tensor<const std::int32_t, 1> targets;  // (count)
  };

  // Writes logits (rows, columns) from hidden (rows, C), which is never quantized.
  void logits(Tensor<T, 2> logits, In<T, 2> hidden, Context& context) const {
    const ProfileScope scope("logits", context.stream);
    constexpr const T* kNoBias = nullptr;
    if (context.quantization.pass().weights) {
      quantized_.product(logits, hidden, {}, Transpose::yes, false, context);
      return;
    }
    matmul(logits, hidden, Transpose::no, weight_values(weight_, context), Transpose::yes, 0.0f,
           kNoBias, context.gemm, context.stream);
  }

  // Computes the logits of each chunk of rows in turn and calls use(chunk).
  template <class Use>
  void for_each_chunk(const LogitsBuffers<T>& buffers, Tensor<float, 1> losses, In<T, 2> hidden,
                      In<std::int32_t, 1> targets, Context& context, Use&& use) const {
    const Tensor<T, 2> buffer = buffers.logits();
    const std::int64_t rows = hidden.shape[0], step = buffer.shape[0];
    for (std::int64_t first = 0; first < rows; first += step) {
      const std::int64_t count = std::min(step, rows - first);
      const Chunk chunk{first,
                        count,
                        first_rows(buffer, count),
                        row_range(losses, first, count),
                        row_range(hidden, first, count),
                        row_range(targets, first, count)};
      logits(chunk.logits, chunk.hidden, context);
      context.outputs.rows("logits", name_, chunk.logits, context.stream, first);
      use(chunk);
    }
  }

  // The statistics (3, count) of a chunk's rows over the whole vocabulary.
  Tensor<float, 2> statistics(const LogitsBuffers<T>& buffers, const Chunk& chunk,
                              Context& context) const {
    Stream& stream = context.stream;
    const Tensor<float, 2> own = buffers.statistics(chunk.count);
    const Tensor<float, 3> all = buffers.all_statistics(chunk.count);
    classifier_statistics<T>(own, chunk.logits, chunk.targets, slice_, stream);
    context.tensor.all_gather<float>(make_tensor(all.data, all.size()),
                                     make_tensor(own.data, own.size()), stream);
    merge_classifier_statistics(own, all, stream);
    return own;
  }

  // Writes the losses of a chunk, and replaces its logits by their gradients.
  void write_gradients(const Chunk& chunk, const LogitsBuffers<T>& buffers, const LossOptions& loss,
                       Context& context) const {
    Stream& stream = context.stream;
    if (context.tensor.ranks() == 1) {
      fused_classifier<T>(chunk.logits, chunk.losses, chunk.targets, loss.scale, slice_.end, stream,
                          loss.factor);
      report_classifier(chunk, context);
      return;
    }
    classifier_from_statistics<T>(chunk.logits, chunk.losses, chunk.targets,
                                  statistics(buffers, chunk, context), loss.scale, slice_, stream,
                                  loss.factor);
    report_classifier(chunk, context);
  }

  void report_classifier(const Chunk& chunk, Context& context) const {
    context.outputs.rows("classifier", name_, chunk.losses, context.stream, chunk.first);
    context.outputs.rows("classifier", name_, chunk.logits, context.stream, chunk.first);
  }

  // Adds to the gradient of the weight, then writes d_hidden (count, C).
  void add_products(Tensor<T, 2> d_hidden, const Chunk& chunk, Context& context) const {
    constexpr const T* kNoBias = nullptr;
    const Tensor<const T, 2> d_logits = chunk.logits;
    const WeightGradient d_weight = weight_.product_gradient();
    if (d_weight.sum.data != nullptr) {
      const ProfileScope scope("logits weight gradient", context.stream);
      matmul(d_weight.sum, d_logits, Transpose::yes, chunk.hidden, Transpose::no, d_weight.beta,
             kNoBias, context.gemm, context.stream);
      context.outputs.sum("logits weight gradient", name_, d_weight.sum, context.stream);
    }
    const ProfileScope scope("logits input gradient", context.stream);
    const Tensor<const T, 2> weight = context.quantization.pass().weights
                                          ? quantized_.quantized(Quantized::values, context)
                                          : weight_values(weight_, context);
    matmul(d_hidden, d_logits, Transpose::no, weight, Transpose::no, 0.0f, kNoBias, context.gemm,
           context.stream);
    context.outputs.rows("logits input gradient", name_, d_hidden, context.stream, chunk.first);
  }

  VocabularySlice slice_;
  Parameter<T> weight_;
  std::string name_;  // in reports
  QuantizedWeight<T> quantized_;
};

}  // namespace llmc
