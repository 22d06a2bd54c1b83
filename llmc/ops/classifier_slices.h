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

#include <algorithm>
#include <cmath>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/vocabulary_slice.h"

namespace llmc {

template <class T>
__global__ __launch_bounds__(1024) void classifier_statistics_kernel(
    float* statistics, const T* logits, const std::int32_t* targets, VocabularySlice slice,
    std::int64_t rows, std::int64_t Vp) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const T* row = logits + block_x() * Vp;
  // An empty slice is neutral in the merge. Its sum is set, not computed: exp_minus_max may
  // overflow if both arguments are kMinLogit.
  SoftmaxStatistics softmax{kMinLogit, 0.0f};
  if (slice.size() > 0) softmax = softmax_statistics(row, slice.size(), scratch);
  if (thread_index() == 0) {
    const std::int64_t r = block_x();
    const std::int64_t target = targets[r];
    statistics[r] = softmax.max;
    statistics[rows + r] = softmax.sum;
    statistics[2 * rows + r] = slice.holds(target) ? to_float(row[slice.index_of(target)]) : 0.0f;
  }
}

// One thread per row. statistics is (3, rows); all is (slices, 3, rows).
inline __global__ void merge_classifier_statistics_kernel(float* statistics, const float* all,
                                                          std::int64_t slices, std::int64_t rows) {
  const std::int64_t row = global_thread();
  if (row >= rows) return;
  float max = all[row];
  for (std::int64_t s = 1; s < slices; ++s) max = std::fmax(max, all[s * 3 * rows + row]);
  float sum = 0.0f, logit = 0.0f;
  for (std::int64_t s = 0; s < slices; ++s) {
    const float* of_slice = all + s * 3 * rows + row;
    sum += of_slice[rows] * accurate_exp(of_slice[0] - max);
    logit += of_slice[2 * rows];
  }
  statistics[row] = max;
  statistics[rows + row] = sum;
  statistics[2 * rows + row] = logit;
}

// The loss of row r with target `target`, which may be -1.
__device__ __forceinline__ float loss_from_statistics(const float* statistics, std::int64_t rows,
                                                      std::int64_t r, std::int64_t target) {
  if (target < 0) return 0.0f;
  return cross_entropy({statistics[r], statistics[rows + r]}, statistics[2 * rows + r]);
}

template <class T>
__global__ __launch_bounds__(1024) void classifier_from_statistics_kernel(
    T* logits, float* losses, const std::int32_t* targets, const float* statistics, float dloss,
    const float* dloss_factor, VocabularySlice slice, std::int64_t rows, std::int64_t Vp) {
  const std::int64_t r = block_x();
  T* row = logits + r * Vp;
  const std::int64_t target = targets[r];
  if (thread_index() == 0) losses[r] = loss_from_statistics(statistics, rows, r, target);
  if (target < 0) {
    write_zero_row(row, Vp);
    return;
  }
  write_logit_gradients(row, {statistics[r], statistics[rows + r]}, slice.index_of(target),
                        scale_by(dloss, dloss_factor), slice.size(), Vp);
}

// One thread per row.
inline __global__ void classifier_loss_from_statistics_kernel(float* losses,
                                                              const std::int32_t* targets,
                                                              const float* statistics,
                                                              std::int64_t rows) {
  const std::int64_t r = global_thread();
  if (r < rows) losses[r] = loss_from_statistics(statistics, rows, r, targets[r]);
}

// Threads of a block of the kernels with one thread per row.
inline constexpr int kStatisticsThreads = 128;

// First phase. Writes statistics (3, rows), fp32, of the slice's columns of logits (rows, Vp). The
// sums are relative to the slice's maxima. The target's logit is 0 if the slice does not hold the
// row's target; targets (rows) are token ids or -1. An empty slice has maximum kMinLogit, sum 0 and
// target logit 0.
template <class T>
void classifier_statistics(Tensor<float, 2> statistics, In<T, 2> logits,
                           Tensor<const std::int32_t, 1> targets, VocabularySlice slice,
                           Stream& stream) {
  const ProfileScope scope("classifier statistics", stream);
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  require_vector_rows("classifier_statistics", Vp);
  check_vocabulary_slice("classifier_statistics", slice, Vp);
  check_shape("statistics", statistics, {3, rows});
  check_shape("targets", targets, {rows});
  launch(classifier_statistics_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream,
         statistics.data, logits.data, targets.data, slice, rows, Vp);
}

// Between the phases. Merges the statistics `all` (slices, 3, rows), in vocabulary order, into
// statistics (3, rows) of whole rows. The order is fixed, so every rank computes the same bits.
// Empty slices change no bit.
inline void merge_classifier_statistics(Tensor<float, 2> statistics, In<float, 3> all,
                                        Stream& stream) {
  const ProfileScope scope("classifier statistics", stream);
  const std::int64_t slices = all.shape[0], rows = all.shape[2];
  require(slices > 0, "merge_classifier_statistics: there are no slices");
  check_shape("statistics", statistics, {3, rows});
  check_shape("all", all, {slices, 3, rows});
  launch(merge_classifier_statistics_kernel, Grid{ceil_div(rows, kStatisticsThreads), 1, 1},
         kStatisticsThreads, 0, stream, statistics.data, all.data, slices, rows);
}

// Second phase, with the statistics (3, rows) of whole rows. Writes losses (rows) and replaces
// logits (rows, Vp) by the gradients of the slice's columns, and by zeros in the padding. dloss,
// dloss_factor and targets (rows) are as in fused_classifier.
template <class T>
void classifier_from_statistics(Tensor<T, 2> logits, Tensor<float, 1> losses,
                                Tensor<const std::int32_t, 1> targets, In<float, 2> statistics,
                                float dloss, VocabularySlice slice, Stream& stream,
                                const float* dloss_factor = nullptr) {
  const ProfileScope scope("classifier", stream);
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  require_vector_rows("classifier_from_statistics", Vp);
  check_vocabulary_slice("classifier_from_statistics", slice, Vp);
  check_shape("losses", losses, {rows});
  check_shape("targets", targets, {rows});
  check_shape("statistics", statistics, {3, rows});
  launch(classifier_from_statistics_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), 0, stream, logits.data, losses.data,
         targets.data, statistics.data, dloss, dloss_factor, slice, rows, Vp);
}

// classifier_from_statistics without gradients: writes losses (rows), with the same bits.
inline void classifier_loss_from_statistics(Tensor<float, 1> losses,
                                            Tensor<const std::int32_t, 1> targets,
                                            In<float, 2> statistics, Stream& stream) {
  const ProfileScope scope("classifier loss", stream);
  const std::int64_t rows = losses.shape[0];
  check_shape("targets", targets, {rows});
  check_shape("statistics", statistics, {3, rows});
  launch(classifier_loss_from_statistics_kernel, Grid{ceil_div(rows, kStatisticsThreads), 1, 1},
         kStatisticsThreads, 0, stream, losses.data, targets.data, statistics.data, rows);
}

}  // namespace llmc
