// The sum of an array by one block, in a fixed order.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Threads of the block that sums n floats: one per 16 floats, which a thread adds in one iteration;
// 32 to 1024.
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
  constexpr int N = 4;
  constexpr int kPrefetchVectors = 4;
  const std::int64_t stride = block_size() * N;
  float sum = 0.0f;
  for (std::int64_t i = thread_index() * N; i < n; i += kPrefetchVectors * stride) {
    Vec<float, N> v[kPrefetchVectors];
    for (int a = 0; a < kPrefetchVectors; ++a) {
      const std::int64_t next = i + a * stride;
      v[a] = load_up_to<N>(x + next, n - next);
    }
    for (int a = 0; a < kPrefetchVectors; ++a) sum += (v[a][0] + v[a][1]) + (v[a][2] + v[a][3]);
  }
  return block_sum(sum, scratch);
}

}  // namespace llmc
