// Initial values of parameters.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// One thread per group of four numbers, the unit in which Philox hands them out.
inline __global__ void normal_fill_kernel(float* p, std::int64_t n, std::int64_t first_index,
                                          std::uint64_t seed, std::uint32_t tensor, float mean,
                                          float deviation) {
  const std::int64_t group = first_index / 4 + global_thread();
  if (group * 4 >= first_index + n) return;
  const PhiloxBits bits = random_bits(seed, RandomPurpose::initialisation, 0, tensor,
                                      static_cast<std::uint64_t>(group));
  float normal[4];
  normals_from_bits(bits.words[0], bits.words[1], normal[0], normal[1]);
  normals_from_bits(bits.words[2], bits.words[3], normal[2], normal[3]);
  for (int k = 0; k < 4; ++k) {
    const std::int64_t i = group * 4 + k - first_index;
    if (i >= 0 && i < n) p[i] = mean + deviation * normal[k];
  }
}

// p[i] = a normal number with this mean and standard deviation, for i < n. p[i] is element
// first_index + i of the tensor with the number `tensor` (below 2^24, elements below 2^42), and
// depends on that, on seed, mean and deviation alone: a slice is filled as the whole would be.
inline void normal_fill(float* p, std::int64_t n, std::int64_t first_index, std::uint64_t seed,
                        std::uint32_t tensor, float mean, float deviation, Stream& stream) {
  const std::int64_t groups = ceil_div(first_index + n, 4) - first_index / 4;
  launch_elementwise<1>(normal_fill_kernel, groups, stream, p, n, first_index, seed, tensor, mean,
                        deviation);
}

template <class T>
__global__ void constant_fill_kernel(T* p, std::int64_t n, float value) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  Vec<T, N> v;
  for (int k = 0; k < N; ++k) v[k] = from_float<T>(value);
  store_up_to(p + i, v, n - i);
}

// p[i] = value for i < n; p is aligned to 16 bytes.
template <class T>
void constant_fill(T* p, std::int64_t n, float value, Stream& stream) {
  launch_elementwise<kPerThread<T>>(constant_fill_kernel<T>, n, stream, p, n, value);
}

}  // namespace llmc
