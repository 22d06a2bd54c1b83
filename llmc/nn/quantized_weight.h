// A weight that quantized passes multiply as INT8 codes: its scales, and the steps of a product.
// The shared buffers are in Context (fake_quantization.h).
#pragma once

#include <cstdint>

#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter.h"
#include "llmc/ops/fake_quantize.h"
#include "llmc/ops/gemm/matmul.h"

namespace llmc {

template <class T>
class QuantizedWeight {
 public:
  using Kind = ObservedMatrix::Kind;

  // `splits_rows`: tensor ranks have parts of the rows of a linear layer's weight, and of the
  // columns of its input.
  QuantizedWeight(const Parameter<T>& weight, ScaleAxis axis, bool splits_rows = false)
      : weight_(weight), axis_(axis), splits_rows_(splits_rows) {}

  // Reserves memory for the scales; usable after plan.allocate(). The object must not move then.
  void reserve(MemoryPlan& plan) {
    const LocalParameter& part = weight_.spec().part;
    plan.reserve("qat", scales_, axis_ == ScaleAxis::rows ? part.stored_rows : part.shape[1]);
  }

  // One scale per row or column. They are computed at the first use after the weights have changed,
  // so once per step; with sharded weights, while the block is gathered.
  Tensor<const float, 1> scales(Context& context) const {
    const std::int64_t version = weight_.version();
    if (version != scales_version_) compute_scales(context);
    scales_version_ = version;
    return scales_;
  }

  // The codes of the weight, or the values that they stand for. In the buffer of weights.
  Tensor<const T, 2> quantized(Quantized result, Context& context) const {
    const Tensor<const T, 2> weight = weight_.matrix();
    const FakeQuantization& buffers = context.quantization;
    const Tensor<T, 2> out = buffers.weights<T>(weight.shape[0], weight.shape[1]);
    fake_quantize_weight<T>(out, weight, scales(context), axis_, result, context.stream);
    buffers.report(result == Quantized::codes ? Kind::weight_codes : Kind::weight_values,
                   weight_.spec(), out, context.stream);
    return out;
  }

  // The input x (rows, K) of the layer in the same way, in the buffer of inputs; x itself if the
  // pass does not quantize activations. Leaves the rows' quantizations in their buffer. If ranks
  // have parts of the columns, all of them use the range of the whole row.
  Tensor<const T, 2> quantized_input(In<T, 2> x, Quantized result, Context& context) const {
    const FakeQuantization& buffers = context.quantization;
    if (!buffers.pass().activations) return x;
    const std::int64_t rows = x.shape[0];
    const Tensor<T, 2> out = buffers.inputs<T>(rows, x.shape[1]);
    fake_quantize_rows<T>(out, buffers.quantizations(rows), x, ranges(x, context),
                          buffers.pass().zero_points, result, context.stream);
    buffers.report(result == Quantized::codes ? Kind::input_codes : Kind::input_values,
                   weight_.spec(), out, context.stream);
    return out;
  }

  // out (rows, N) = sums of codes times scales, plus bias (N) if that has data. `inputs` are codes
  // if the pass quantizes activations. `transpose`: the weight is (N, K), as for logits.
  void product(Tensor<T, 2> out, In<T, 2> inputs, In<T, 1> bias, Transpose transpose,
               bool quantized_rows, Context& context) const {
    constexpr const T* kNoBias = nullptr;
    const FakeQuantization& buffers = context.quantization;
    const Tensor<const T, 2> codes = quantized(Quantized::codes, context);
    const std::int64_t rows = out.shape[0], step = sums_rows(rows);
    for (std::int64_t first = 0; first < rows; first += step) {
      const std::int64_t count = std::min(step, rows - first);
      const Tensor<T, 2> some = row_range(out, first, count);
      const Tensor<float, 2> sums = buffers.sums(some);
      {
        const ProfileScope scope("product of codes", context.stream);
        matmul(sums, row_range(inputs, first, count), Transpose::no, codes, transpose, 0.0f,
               kNoBias, context.gemm, context.stream);
      }
      buffers.report(Kind::sums, weight_.spec(), sums, context.stream);
      Tensor<const Quantization, 1> of_rows;
      if (quantized_rows) of_rows = row_range(buffers.quantizations(rows), first, count);
      scaled_sums<T>(some, sums, of_rows, scales(context), bias, context.stream);
    }
  }

 private:
  std::int64_t sums_rows(std::int64_t rows) const {
    return axis_ == ScaleAxis::rows ? FakeQuantization::rows_of_logits<T>(rows) : rows;
  }

  void compute_scales(Context& context) const {
    const Tensor<const T, 2> weight = weight_.matrix();
    Stream& stream = context.stream;
    if (axis_ == ScaleAxis::rows) return row_scales<T>(scales_, weight, stream);
    const std::int64_t ranks = splits_rows_ ? context.tensor.ranks() : 1;
    const std::int64_t parts = magnitude_parts(weight.shape[0]), N = weight.shape[1];
    const Tensor<float, 3> all = context.quantization.magnitudes(ranks, parts, N);
    const Tensor<float, 2> own = {all.data + own_index(ranks, context) * parts * N, {parts, N}};
    column_magnitudes<T>(own, weight, stream);
    all_gather(all, own.size(), ranks, context);
    scales_from_magnitudes(scales_, make_tensor(all.data, ranks * parts, N), stream);
  }

  // The ranges of x (rows, K) in the parts of all ranks, or no data if this rank has whole rows.
  Tensor<const float, 3> ranges(In<T, 2> x, Context& context) const {
    const std::int64_t rows = x.shape[0], ranks = splits_rows_ ? context.tensor.ranks() : 1;
    if (ranks == 1) return {};
    const Tensor<float, 3> all = context.quantization.ranges(ranks, rows);
    const Tensor<float, 2> own = {all.data + own_index(ranks, context) * rows * 2, {rows, 2}};
    row_ranges<T>(own, x, context.stream);
    all_gather(all, own.size(), ranks, context);
    return all;
  }

  static std::int64_t own_index(std::int64_t ranks, Context& context) {
    return ranks == 1 ? 0 : context.tensor.rank();
  }

  // Every rank gets the pieces of all ranks, whose maximum or union has the same bits everywhere.
  static void all_gather(const Tensor<float, 3>& all, std::int64_t piece, std::int64_t ranks,
                         Context& context) {
    if (ranks == 1) return;
    const float* own = all.data + context.tensor.rank() * piece;
    context.tensor.template all_gather<float>(make_tensor(all.data, all.size()),
                                              make_tensor(own, piece), context.stream);
  }

  Parameter<T> weight_;
  ScaleAxis axis_;
  bool splits_rows_;
  Tensor<float, 1> scales_;
  mutable std::int64_t scales_version_ = -1;  // of the weights that scales_ belongs to
};

}  // namespace llmc
