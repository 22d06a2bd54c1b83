// The language-model head: logits = hidden · wteᵀ, and the cross-entropy of the targets. Only
// `logits.shape[0]` rows of logits exist at a time: a chunk's losses and gradients are computed
// before the next chunk replaces it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/rows.h"
#include "llmc/model/context.h"
#include "llmc/model/parameter.h"
#include "llmc/ops/classifier.h"

namespace llmc {

// The loss that a backward pass differentiates. Gradients are those of scale × the sum of the
// losses, times *factor unless it is null. The pass adds scale × the sum of the losses to sum (1).
struct LossOptions {
  float scale = 1;
  Tensor<float, 1> sum;           // fp32, in device memory
  const float* factor = nullptr;  // in device memory
};

template <class T>
class LmHead {
 public:
  // `vocabulary` is V. Logits have Vp columns, one per row of wte, which is padded.
  LmHead(std::int64_t vocabulary, const ParameterTable& table, ParameterSource& source)
      : vocabulary_(vocabulary), wte_(table, "wte.weight", source) {}

  // Writes logits (rows, Vp) from hidden (rows, C).
  void logits(Tensor<T, 2> logits, In<T, 2> hidden, Context& context) const {
    const ProfileScope scope("logits", context.stream);
    constexpr const T* kNoBias = nullptr;
    matmul(logits, hidden, Transpose::no, wte_.matrix(), Transpose::yes, 0.0f, kNoBias,
           context.gemm, context.stream);
  }

  // Writes losses (rows) from hidden (rows, C) and targets (rows). `logits` (chunk, Vp) is scratch.
  void losses(Tensor<float, 1> losses, Tensor<T, 2> logits, In<T, 2> hidden,
              In<std::int32_t, 1> targets, Context& context) const {
    for_each_chunk(logits, losses, hidden, targets, context, [&](const Chunk& chunk) {
      classifier_loss<T>(chunk.losses, chunk.logits, chunk.targets, vocabulary_, context.stream);
    });
  }

  // Like losses(), but also writes d_hidden (rows, C) and adds to the gradient of wte.
  void backward(Tensor<T, 2> d_hidden, Tensor<float, 1> losses, Tensor<T, 2> logits,
                In<T, 2> hidden, In<std::int32_t, 1> targets, const LossOptions& loss,
                Context& context) const {
    Stream& stream = context.stream;
    constexpr const T* kNoBias = nullptr;
    const Tensor<float, 2> d_wte = wte_.matrix_gradient();
    for_each_chunk(logits, losses, hidden, targets, context, [&](const Chunk& chunk) {
      fused_classifier<T>(chunk.logits, chunk.losses, chunk.targets, loss.scale, vocabulary_,
                          stream, loss.factor);
      const Tensor<const T, 2> d_logits = chunk.logits;
      if (d_wte.data != nullptr) {
        const ProfileScope scope("logits weight gradient", stream);
        matmul(d_wte, d_logits, Transpose::yes, chunk.hidden, Transpose::no, 1.0f, kNoBias,
               context.gemm, stream);
      }
      const ProfileScope scope("logits input gradient", stream);
      matmul(row_range(d_hidden, chunk.first, chunk.count), d_logits, Transpose::no, wte_.matrix(),
             Transpose::no, 0.0f, kNoBias, context.gemm, stream);
    });
    sum_losses(loss.sum, losses, loss.scale, stream);
  }

 private:
  struct Chunk {
    std::int64_t first, count;
    Tensor<T, 2> logits;                    // (count, Vp)
    Tensor<float, 1> losses;                // (count)
    Tensor<const T, 2> hidden;              // (count, C)
    Tensor<const std::int32_t, 1> targets;  // (count)
  };

  // Computes the logits of each chunk of rows in turn and calls use(chunk).
  template <class Use>
  void for_each_chunk(Tensor<T, 2> buffer, Tensor<float, 1> losses, In<T, 2> hidden,
                      In<std::int32_t, 1> targets, Context& context, Use&& use) const {
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
      use(chunk);
    }
  }

  std::int64_t vocabulary_;
  Parameter<T> wte_;
};

}  // namespace llmc
