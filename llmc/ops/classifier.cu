#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/classifier_row.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

// ---- one rank: both phases in one kernel ---------------------------------------------------

// One block per row. The second read of a row hits the L2 cache: the rows in flight on a whole GPU,
// two blocks per multiprocessor, take about half of it.
template <class T>
__global__ __launch_bounds__(1024) void fused_classifier_kernel(T* logits, float* losses,
                                                                const std::int32_t* targets,
                                                                float dloss,
                                                                const float* dloss_factor,
                                                                std::int64_t V, std::int64_t Vp) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  T* row = logits + block_x() * Vp;
  const std::int64_t target = targets[block_x()];
  if (target < 0) {
    write_zero_row(row, Vp);
    if (thread_index() == 0) losses[block_x()] = 0.0f;
    return;
  }
  // Read before the first barrier. After it, other threads may have overwritten the logit.
  const float target_logit = to_float(row[target]);
  const SoftmaxStatistics softmax = softmax_statistics(row, V, scratch);
  if (thread_index() == 0) losses[block_x()] = cross_entropy(softmax, target_logit);
  write_logit_gradients(row, softmax, target, scale_by(dloss, dloss_factor), V, Vp);
}

template <class T>
__global__ __launch_bounds__(1024) void classifier_loss_kernel(float* losses, const T* logits,
                                                               const std::int32_t* targets,
                                                               std::int64_t V, std::int64_t Vp) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const T* row = logits + block_x() * Vp;
  const std::int64_t target = targets[block_x()];
  if (target < 0) {
    if (thread_index() == 0) losses[block_x()] = 0.0f;
    return;
  }
  const SoftmaxStatistics softmax = softmax_statistics(row, V, scratch);
  if (thread_index() == 0) losses[block_x()] = cross_entropy(softmax, to_float(row[target]));
}

template <class T>
void fused_classifier(Tensor<T, 2> logits, Tensor<float, 1> losses,
                      Tensor<const std::int32_t, 1> targets, float dloss, std::int64_t V,
                      Stream& stream, const float* dloss_factor) {
  const ProfileScope scope("classifier", stream, memory_traffic(logits, logits));
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  check_classifier("fused_classifier", V, Vp);
  check_shape("losses", losses, {rows});
  check_shape("targets", targets, {rows});
  launch(fused_classifier_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream, logits.data,
         losses.data, targets.data, dloss, dloss_factor, V, Vp);
}

template <class T>
void classifier_loss(Tensor<float, 1> losses, In<T, 2> logits,
                     Tensor<const std::int32_t, 1> targets, std::int64_t V, Stream& stream) {
  const ProfileScope scope("classifier loss", stream, memory_traffic(logits));
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  check_classifier("classifier_loss", V, Vp);
  check_shape("losses", losses, {rows});
  check_shape("targets", targets, {rows});
  launch(classifier_loss_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream, losses.data,
         logits.data, targets.data, V, Vp);
}

// ---- the step's loss -----------------------------------------------------------------------
__global__ void sum_losses_kernel(float* total, const float* losses, std::int64_t n, float scale) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const float sum = array_sum(losses, n, scratch);
  // The product is rounded before it is added, as by ranks that add up their losses: without the
  // fma, a compiler may fuse product and addition.
  if (thread_index() == 0) total[0] += std::fma(scale, sum, 0.0f);
}

void sum_losses(Tensor<float, 1> total, In<float, 1> losses, float scale, Stream& stream) {
  const ProfileScope scope("sum of losses", stream);
  check_shape("total", total, {1});
  launch(sum_losses_kernel, Grid{1, 1, 1}, cooperating_threads(array_sum_threads(losses.size())),
         array_sum_shared(), stream, total.data, losses.data, losses.size(), scale);
}

LLMC_INSTANTIATE(fused_classifier)
LLMC_INSTANTIATE(classifier_loss)

}  // namespace llmc
