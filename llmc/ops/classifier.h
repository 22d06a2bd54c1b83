// Softmax cross-entropy over the vocabulary. Computes losses and replaces the logits by their
// gradients.
//
// There are two phases. *Statistics* of a row: its maximum m, the sum s of exp(logit - m), the
// target's logit. *From statistics*: loss = log s + m - target's logit, and
// d_logit = (exp(logit - m) / s - [is target]) * dloss. One rank runs both at once
// (fused_classifier). Ranks that hold slices of the vocabulary run them apart, merge their
// statistics in between and never gather logits (classifier_slices.h).
//
// Logits are stored in padded rows of Vp >= V numbers; Vp is a multiple of 8. Columns from V on are
// never read; their gradients are written as 0. A row with target -1 is ignored: its loss and
// gradients are 0.
#pragma once

#include "llmc/device/device.h"

namespace llmc {

// logits (rows, Vp): logits in, d loss / d logits out. The loss is dloss * the sum of the rows'
// losses; for a mean over a step, dloss is 1 / (B * T * grad_accum). Writes losses (rows), fp32,
// not scaled. targets (rows) are in [0, V), or -1 to ignore the row; the data code checks them.
// V <= Vp, any V. dloss_factor, unless null, is one number in device memory that multiplies dloss,
// only for the gradients: the loss scale of fp16 (optimizer_state.h).
template <class T>
void fused_classifier(Tensor<T, 2> logits, Tensor<float, 1> losses,
                      Tensor<const std::int32_t, 1> targets, float dloss, std::int64_t V,
                      Stream& stream, const float* dloss_factor = nullptr);

// fused_classifier without gradients: writes losses (rows) and does not change logits (rows, Vp).
template <class T>
void classifier_loss(Tensor<float, 1> losses, In<T, 2> logits,
                     Tensor<const std::int32_t, 1> targets, std::int64_t V, Stream& stream);

// total (1) += scale * the sum of losses (n), in a fixed order. It adds, so that the micro-batches
// of a step accumulate; the caller sets total to 0 before the first.
void sum_losses(Tensor<float, 1> total, In<float, 1> losses, float scale, Stream& stream);

}  // namespace llmc
