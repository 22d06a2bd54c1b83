// Sums in a fixed order: of the elements of a vector, of the numbers of one thread, and of an array
// by one block.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Sum of one thread's numbers, which come in vectors: one chain of additions on a GPU. Where a
// thread does the work of a whole block, one chain per element of a vector, in SIMD registers.
template <int N>
class ThreadSum {
 public:
  __device__ __forceinline__ void add(const Floats<N>& x) {
    if constexpr (kOneThreadBlocks) {
      sums_ += x;
    } else {
      for (int k = 0; k < N; ++k) sums_.in_register(0) += x[k];
    }
  }
  // Adds x * y, rounded once where the target has fused multiply-add.
  __device__ __forceinline__ void add_product(const Floats<N>& x, const Floats<N>& y) {
    if constexpr (kOneThreadBlocks) {
      sums_ = multiply_add(x, y, sums_);
    } else {
      for (int k = 0; k < N; ++k) {
        sums_ = multiply_add(Floats<1>(x[k]), Floats<1>(y[k]), sums_);
      }
    }
  }
  __device__ __forceinline__ void scale(float factor) { sums_ = factor * sums_; }
  __device__ __forceinline__ float total() const { return sum_of(sums_); }

 private:
  Floats<kOneThreadBlocks ? N : 1> sums_;
};

// Threads of a GPU's block that sums n floats: one per 16 floats, which a thread adds in one
// iteration; 32 to 1024. Launch with cooperating_threads of it.
inline int array_sum_threads(std::int64_t n) {
  return static_cast<int>(std::clamp<std::int64_t>(round_up(ceil_div(n, 16), 32), 32, 1024));
}

inline std::size_t array_sum_shared() {
  return SharedLayout().add<float>(kBlockScratch).bytes();
}

// Returns x[0] + ... + x[n-1] to every thread; all threads of the block call it. x is aligned to 16
// bytes. A single block must keep many loads in flight, so a thread loads kPrefetchVectors vectors
// before it adds the first. The order of the sum depends only on n and the block size.
__device__ __forceinline__ float array_sum(const float* x, std::int64_t n, float* scratch) {
  constexpr int N = kOneThreadBlocks ? 32 : 4;
  constexpr int kPrefetchVectors = kOneThreadBlocks ? 1 : 4;
  const std::int64_t stride = cooperating_threads(block_size()) * N;
  ThreadSum<N> sum;
  for (std::int64_t i = thread_index() * N; i < n; i += kPrefetchVectors * stride) {
    Vec<float, N> v[kPrefetchVectors];
    for (int a = 0; a < kPrefetchVectors; ++a) {
      const std::int64_t next = i + a * stride;
      v[a] = load_up_to<N>(x + next, n - next);
    }
    for (int a = 0; a < kPrefetchVectors; ++a) sum.add(to_floats(v[a]));
  }
  return block_sum(sum.total(), scratch);
}

}  // namespace llmc
