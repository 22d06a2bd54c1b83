// What ops on flat arrays share: each thread handles N neighbouring elements, whatever the shape.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"

namespace llmc {

inline constexpr int kElementwiseThreads = 256;

// Blocks of kElementwiseThreads threads for n elements, N to a thread. Thread i of the grid starts
// at element i * N; the kernel leaves at once where that is not below n.
template <int N>
Grid elementwise_grid(std::int64_t n) {
  return Grid{ceil_div(n, kElementwiseThreads * N), 1, 1};
}

// The first `count` elements at p, at most N; the rest of the vector is 0 and not read from memory.
// p is aligned to 16 bytes.
template <int N, class T>
__device__ __forceinline__ Vec<T, N> load_up_to(const T* p, std::int64_t count) {
  if (count >= N) return load_vec<N>(p);
  Vec<T, N> v{};
  for (int k = 0; k < N; ++k) {
    if (k < count) v[k] = p[k];
  }
  return v;
}

// Writes the first `count` elements of v, at most N, to p (aligned to 16 bytes).
template <class T, int N>
__device__ __forceinline__ void store_up_to(T* p, const Vec<T, N>& v, std::int64_t count) {
  if (count >= N) {
    store_vec(p, v);
    return;
  }
  for (int k = 0; k < N; ++k) {
    if (k < count) p[k] = v[k];
  }
}

}  // namespace llmc
