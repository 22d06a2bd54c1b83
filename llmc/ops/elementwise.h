// Shared by ops on flat arrays: each thread processes N contiguous elements, whatever the shape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"

namespace llmc {

// Elements per thread. On a GPU, one 16-byte access. On the host a thread is a function call, so
// four cache lines; one in builds with the block sizes of a GPU, which have more threads that may
// race.
template <class T>
inline constexpr int kPerThread = (kGpuKernels        ? 16
                                   : kOneThreadBlocks ? 256
                                                      : 64) /
                                  static_cast<int>(sizeof(T));

// Maximum number of threads per block. On the host fewer, because each does more.
inline constexpr int kElementwiseThreads = kOneThreadBlocks ? 64 : 256;

// Elements per access of kernels that process rows, whose length is a multiple of 8.
template <class T>
inline constexpr int kRowVector = kOneThreadBlocks ? 8 : kVecSize<T>;

// Rows of a block in kernels with little work per row. A block of the host costs about as much as a
// short row.
inline constexpr int kRowsPerBlock = kOneThreadBlocks ? 8 : 1;

// Calls f(row) for the block's rows, kRowsPerBlock of `rows`. Same rows for all threads of a block.
template <class F>
__device__ __forceinline__ void for_each_block_row(std::int64_t rows, const F& f) {
  const std::int64_t first = block_x() * kRowsPerBlock;
  for (int r = 0; r < kRowsPerBlock; ++r) {
    if (first + r >= rows) return;
    f(first + r);
  }
}

// Calls f(c) for the first elements c of the thread's vectors of N, in a row of C elements that the
// block shares.
template <int N, class F>
__device__ __forceinline__ void for_each_row_vector(std::int64_t C, const F& f) {
  const int threads = cooperating_threads(block_size());
  for (std::int64_t c = thread_index() * N; c < C; c += threads * N) f(c);
}

// Threads of a block that processes rows of C elements.
template <class T>
int row_block_threads(std::int64_t C) {
  return cooperating_threads(
      static_cast<int>(std::min<std::int64_t>(256, round_up(ceil_div(C, kRowVector<T>), 32))));
}

// Launches kernel(arguments...) with one thread per N of n elements. Thread i of the grid processes
// up to N elements from i * N on. The kernel must return at once if i * N >= n.
template <int N, class... Parameters, class... Arguments>
void launch_elementwise(void (*kernel)(Parameters...), std::int64_t n, Stream& stream,
                        Arguments... arguments) {
  if (n == 0) return;
  const std::int64_t threads =
      std::min<std::int64_t>(kElementwiseThreads, round_up(ceil_div(n, N), 32));
  launch(kernel, Grid{ceil_div(n, threads * N), 1, 1}, static_cast<int>(threads), 0, stream,
         arguments...);
}

// Returns the first `count` elements at p: at most N, and none if `count` is negative. The rest of
// the vector is 0 and is not read from memory. p is aligned to 16 bytes.
template <int N, class T>
__host__ __device__ __forceinline__ Vec<T, N> load_up_to(const T* p, std::int64_t count) {
  if (count >= N) return load_vec<N>(p);
  Vec<T, N> v{};
  for (int k = 0; k < N; ++k) {
    if (k < count) v[k] = p[k];
  }
  return v;
}

// Writes the first `count` elements of v, at most N, to p (aligned to 16 bytes).
template <class T, int N>
__host__ __device__ __forceinline__ void store_up_to(T* p, const Vec<T, N>& v, std::int64_t count) {
  if (count >= N) {
    store_vec(p, v);
    return;
  }
  for (int k = 0; k < N; ++k) {
    if (k < count) p[k] = v[k];
  }
}

// The same with conversions from and to fp32.
template <int N, class T>
__device__ __forceinline__ Floats<N> load_floats_up_to(const T* p, std::int64_t count) {
  return count >= N ? load_floats<N>(p) : to_floats(load_up_to<N>(p, count));
}
template <class T, int N>
__device__ __forceinline__ void store_floats_up_to(T* p, const Floats<N>& x, std::int64_t count) {
  if (count >= N) {
    store_floats(p, x);
  } else {
    store_up_to(p, from_floats<T>(x), count);
  }
}

}  // namespace llmc
