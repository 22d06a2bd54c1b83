#include <algorithm>
#include <cmath>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/classifier_row.h"
#include "llmc/ops/classifier_slices.h"
#include "llmc/ops/instantiate.h"
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
__global__ void merge_classifier_statistics_kernel(float* statistics, const float* all,
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
__global__ void classifier_loss_from_statistics_kernel(float* losses, const std::int32_t* targets,
                                                       const float* statistics, std::int64_t rows) {
  const std::int64_t r = global_thread();
  if (r < rows) losses[r] = loss_from_statistics(statistics, rows, r, targets[r]);
}

// Threads of a block of the kernels with one thread per row.
inline constexpr int kStatisticsThreads = 128;

template <class T>
void classifier_statistics(Tensor<float, 2> statistics, In<T, 2> logits,
                           Tensor<const std::int32_t, 1> targets, VocabularySlice slice,
                           Stream& stream) {
  const ProfileScope scope("classifier statistics", stream, memory_traffic(logits));
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  require_vector_rows("classifier_statistics", Vp);
  check_vocabulary_slice("classifier_statistics", slice, Vp);
  check_shape("statistics", statistics, {3, rows});
  check_shape("targets", targets, {rows});
  launch(classifier_statistics_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream,
         statistics.data, logits.data, targets.data, slice, rows, Vp);
}

void merge_classifier_statistics(Tensor<float, 2> statistics, In<float, 3> all, Stream& stream) {
  const ProfileScope scope("classifier statistics", stream);
  const std::int64_t slices = all.shape[0], rows = all.shape[2];
  require(slices > 0, "merge_classifier_statistics: there are no slices");
  check_shape("statistics", statistics, {3, rows});
  check_shape("all", all, {slices, 3, rows});
  launch(merge_classifier_statistics_kernel, Grid{ceil_div(rows, kStatisticsThreads), 1, 1},
         kStatisticsThreads, 0, stream, statistics.data, all.data, slices, rows);
}

template <class T>
void classifier_from_statistics(Tensor<T, 2> logits, Tensor<float, 1> losses,
                                Tensor<const std::int32_t, 1> targets, In<float, 2> statistics,
                                float dloss, VocabularySlice slice, Stream& stream,
                                const float* dloss_factor) {
  const ProfileScope scope("classifier", stream, memory_traffic(logits, logits));
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

void classifier_loss_from_statistics(Tensor<float, 1> losses, Tensor<const std::int32_t, 1> targets,
                                     In<float, 2> statistics, Stream& stream) {
  const ProfileScope scope("classifier loss", stream);
  const std::int64_t rows = losses.shape[0];
  check_shape("targets", targets, {rows});
  check_shape("statistics", statistics, {3, rows});
  launch(classifier_loss_from_statistics_kernel, Grid{ceil_div(rows, kStatisticsThreads), 1, 1},
         kStatisticsThreads, 0, stream, losses.data, targets.data, statistics.data, rows);
}

LLMC_INSTANTIATE(classifier_statistics)
LLMC_INSTANTIATE(classifier_from_statistics)

}  // namespace llmc
