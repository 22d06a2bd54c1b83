// The softmax of a row of logits, for the kernels of classifier.h and classifier_slices.h.
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

}  // namespace llmc
