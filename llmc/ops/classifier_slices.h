// Softmax cross-entropy of ranks that hold slices of the vocabulary: the two phases of classifier.h
// apart.
//
//     classifier_statistics        each rank: its slice's statistics of each row
//     an all-gather of statistics
//     merge_classifier_statistics  each rank: the statistics of whole rows
//     classifier_from_statistics   each rank: the losses, and the gradients of its slice
//
// Statistics are one tensor (3, rows), so that one all-gather moves them: row 0 has the maxima,
// row 1 the sums of exp(logit - maximum), row 2 the targets' logits.
//
// Column j of a slice's logits (rows, Vp) is token slice.begin + j; columns from slice.size() on
// are padding. A slice may be empty, and all of its columns are padding then.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/vocabulary_slice.h"

namespace llmc {

// First phase. Writes statistics (3, rows), fp32, of the slice's columns of logits (rows, Vp). The
// sums are relative to the slice's maxima. The target's logit is 0 if the slice does not hold the
// row's target; targets (rows) are token ids or -1. An empty slice has maximum kMinLogit, sum 0 and
// target logit 0.
template <class T>
void classifier_statistics(Tensor<float, 2> statistics, In<T, 2> logits,
                           Tensor<const std::int32_t, 1> targets, VocabularySlice slice,
                           Stream& stream);

// Between the phases. Merges the statistics `all` (slices, 3, rows), in vocabulary order, into
// statistics (3, rows) of whole rows. The order is fixed, so every rank computes the same bits.
// Empty slices change no bit.
void merge_classifier_statistics(Tensor<float, 2> statistics, In<float, 3> all, Stream& stream);

// Second phase, with the statistics (3, rows) of whole rows. Writes losses (rows) and replaces
// logits (rows, Vp) by the gradients of the slice's columns, and by zeros in the padding. dloss,
// dloss_factor and targets (rows) are as in fused_classifier.
template <class T>
void classifier_from_statistics(Tensor<T, 2> logits, Tensor<float, 1> losses,
                                Tensor<const std::int32_t, 1> targets, In<float, 2> statistics,
                                float dloss, VocabularySlice slice, Stream& stream,
                                const float* dloss_factor = nullptr);

// classifier_from_statistics without gradients: writes losses (rows), with the same bits.
void classifier_loss_from_statistics(Tensor<float, 1> losses, Tensor<const std::int32_t, 1> targets,
                                     In<float, 2> statistics, Stream& stream);

}  // namespace llmc
