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

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Initial value of maxima; logits below it count as -infinity. It is finite, so that a thread
// without columns, or with logits of -infinity, adds 0 to a sum and not NaN.
inline constexpr float kMinLogit = -1e30f;

struct SoftmaxStatistics {
  float max;
  float sum;  // sum of exp(logit - max)
};

// Columns that a thread processes at a time. The one thread of a host's block compares its maximum
// with theirs once, and computes their exponentials in SIMD registers.
template <class T>
inline constexpr int kClassifierVector = kOneThreadBlocks ? 32 : kVecSize<T>;

// Returns exp(x - max). T is the dtype of the logits; F is float or Floats<N>. fp32 needs the
// accurate exponential. In half precision one fma does the subtraction and the change of base; the
// rounding error of kLog2E * max is the same factor for the whole row.
template <class T, class F>
__device__ __forceinline__ F exp_minus_max(const F& x, float max) {
  if constexpr (sizeof(T) < sizeof(float)) {
    using std::fma;
    return fast_exp2(fma(x, kLog2E, -kLog2E * max));
  } else {
    return accurate_exp(x - max);
  }
}

// Running maximum, and sum of exp(logit - maximum), of one thread's columns. The sum is rescaled
// when the maximum grows (Milakov and Gimelshein, 2018).
template <class T>
class ThreadStatistics {
  static constexpr int N = kClassifierVector<T>;

 public:
  __device__ __forceinline__ void add(const Floats<N>& logits) {
    const float vector_max = max_of(logits);
    if (vector_max > max_) {
      sum_.scale(exp_minus_max<T>(max_, vector_max));
      max_ = vector_max;
    }
    sum_.add(exp_minus_max<T>(logits, max_));
  }
  __device__ __forceinline__ SoftmaxStatistics total() const { return {max_, sum_.total()}; }

 private:
  float max_ = kMinLogit;
  ThreadSum<N> sum_;
};

// Statistics of row[0 .. V). The whole block computes them and every thread receives them. One
// pass.
template <class T>
__device__ __forceinline__ SoftmaxStatistics softmax_statistics(const T* row, std::int64_t V,
                                                                float* scratch) {
  constexpr int N = kClassifierVector<T>;
  const int threads = cooperating_threads(block_size());
  const std::int64_t vector_columns = V / N * N;  // columns in whole vectors
  ThreadStatistics<T> statistics;
  for (std::int64_t c = thread_index() * N; c < vector_columns; c += threads * N) {
    statistics.add(load_floats<N>(row + c));
  }
  if (thread_index() == 0 && vector_columns < V) {
    const int count = static_cast<int>(V - vector_columns);
    const Floats<N> last = to_floats(load_up_to<N>(row + vector_columns, count));
    statistics.add(keep_range(last, 0, count - 1, kMinLogit));
  }
  const SoftmaxStatistics own = statistics.total();
  const float row_max = block_max(own.max, scratch);
  return {row_max, block_sum(own.sum * exp_minus_max<T>(own.max, row_max), scratch)};
}

__device__ __forceinline__ float cross_entropy(SoftmaxStatistics softmax, float target_logit) {
  return std::log(softmax.sum) + softmax.max - target_logit;
}

// Replaces logits by gradients, by the whole block. target is the target's column in this row, or
// any number outside [0, V) if the target is in another slice.
template <class T>
__device__ __forceinline__ void write_logit_gradients(T* row, SoftmaxStatistics softmax,
                                                      std::int64_t target, float dloss,
                                                      std::int64_t V, std::int64_t Vp) {
  constexpr int N = kClassifierVector<T>;
  const int threads = cooperating_threads(block_size());
  const std::int64_t vector_columns = V / N * N;
  const float scale = dloss / softmax.sum;
  // Gradients of the N columns from c on; x are their logits.
  const auto gradients = [=](const Floats<N>& x, std::int64_t c) {
    const Floats<N> p = scale * exp_minus_max<T>(x, softmax.max);
    if (target < c || target >= c + N) return p;
    const int k = static_cast<int>(target - c);
    return p - keep_range(Floats<N>(dloss), k, k, 0.0f);
  };
  for (std::int64_t c = thread_index() * N; c < vector_columns; c += threads * N) {
    store_floats(row + c, gradients(load_floats<N>(row + c), c));
  }
  // The last columns of the vocabulary, and the padding.
  for (std::int64_t c = vector_columns + thread_index() * N; c < Vp; c += threads * N) {
    const int count = V > c ? static_cast<int>(V - c) : 0;
    const Floats<N> d = gradients(to_floats(load_up_to<N>(row + c, count)), c);
    const Floats<N> masked = keep_range(d, 0, count - 1, 0.0f);
    store_up_to(row + c, from_floats<T>(masked), Vp - c);
  }
}

// Returns x times a number in device memory, or x if `factor` is null.
__device__ __forceinline__ float scale_by(float x, const float* factor) {
  return factor == nullptr ? x : x * *factor;
}

template <class T>
__device__ __forceinline__ void write_zero_row(T* row, std::int64_t Vp) {
  constexpr int N = kRowVector<T>;
  const int threads = cooperating_threads(block_size());
  for (std::int64_t c = thread_index() * N; c < Vp; c += threads * N) {
    store_vec(row + c, Vec<T, N>{});
  }
}

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

// Threads that share a row on a GPU: one per four vectors, rounded up to whole warps; at most 1024.
template <class T>
int classifier_threads(std::int64_t Vp) {
  const std::int64_t threads = ceil_div(Vp, 4 * kVecSize<T>);
  return static_cast<int>(std::min<std::int64_t>(1024, round_up(threads, 32)));
}

inline std::size_t classifier_shared() {
  return SharedLayout().add<float>(kBlockScratch).bytes();
}

inline void check_classifier(const char* op, std::int64_t V, std::int64_t Vp) {
  require_vector_rows(op, Vp);
  require(V > 0 && V <= Vp,
          std::string(op) + ": the vocabulary is empty or does not fit a row of logits");
}

// logits (rows, Vp): logits in, d loss / d logits out. The loss is dloss * the sum of the rows'
// losses; for a mean over a step, dloss is 1 / (B * T * grad_accum). Writes losses (rows), fp32,
// not scaled. targets (rows) are in [0, V), or -1 to ignore the row; the data code checks them.
// V <= Vp, any V. dloss_factor, unless null, is one number in device memory that multiplies dloss,
// only for the gradients: the loss scale of fp16 (optimizer_state.h).
template <class T>
void fused_classifier(Tensor<T, 2> logits, Tensor<float, 1> losses,
                      Tensor<const std::int32_t, 1> targets, float dloss, std::int64_t V,
                      Stream& stream, const float* dloss_factor = nullptr) {
  const ProfileScope scope("classifier", stream);
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  check_classifier("fused_classifier", V, Vp);
  check_shape("losses", losses, {rows});
  check_shape("targets", targets, {rows});
  launch(fused_classifier_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream, logits.data,
         losses.data, targets.data, dloss, dloss_factor, V, Vp);
}

// fused_classifier without gradients: writes losses (rows) and does not change logits (rows, Vp).
template <class T>
void classifier_loss(Tensor<float, 1> losses, In<T, 2> logits,
                     Tensor<const std::int32_t, 1> targets, std::int64_t V, Stream& stream) {
  const ProfileScope scope("classifier loss", stream);
  const std::int64_t rows = logits.shape[0], Vp = logits.shape[1];
  check_classifier("classifier_loss", V, Vp);
  check_shape("losses", losses, {rows});
  check_shape("targets", targets, {rows});
  launch(classifier_loss_kernel<T>, Grid{rows, 1, 1},
         cooperating_threads(classifier_threads<T>(Vp)), classifier_shared(), stream, losses.data,
         logits.data, targets.data, V, Vp);
}

// ---- the step's loss -----------------------------------------------------------------------

inline __global__ void sum_losses_kernel(float* total, const float* losses, std::int64_t n,
                                         float scale) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const float sum = array_sum(losses, n, scratch);
  // The product is rounded before it is added, as by ranks that add up their losses: without the
  // fma, a compiler may fuse product and addition.
  if (thread_index() == 0) total[0] += std::fma(scale, sum, 0.0f);
}

// total (1) += scale * the sum of losses (n), in a fixed order. It adds, so that the micro-batches
// of a step accumulate; the caller sets total to 0 before the first.
inline void sum_losses(Tensor<float, 1> total, In<float, 1> losses, float scale, Stream& stream) {
  const ProfileScope scope("sum of losses", stream);
  check_shape("total", total, {1});
  launch(sum_losses_kernel, Grid{1, 1, 1}, cooperating_threads(array_sum_threads(losses.size())),
         array_sum_shared(), stream, total.data, losses.data, losses.size(), scale);
}

}  // namespace llmc
