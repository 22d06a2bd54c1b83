// Initial values of parameters.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/global_index.h"

namespace llmc {

// One thread per group of four elements of the whole tensor: Philox generates four numbers at once.
// The range begins `skip` elements after the start of its first group.
inline __global__ void normal_fill_kernel(float* p, std::int64_t n, std::int64_t first,
                                          std::int64_t skip, GlobalIndex index, std::uint64_t seed,
                                          std::uint32_t tensor, float mean, float stddev) {
  const std::int64_t i = global_thread() * 4 - skip;
  if (i >= n) return;
  const std::uint64_t group = static_cast<std::uint64_t>(index(first + i)) / 4;
  const PhiloxBits bits = random_bits(seed, RandomPurpose::initialisation, 0, tensor, group);
  float normal[4];
  normals_from_bits(bits.words[0], bits.words[1], normal[0], normal[1]);
  normals_from_bits(bits.words[2], bits.words[3], normal[2], normal[3]);
  for (int k = 0; k < 4; ++k) {
    if (i + k >= 0 && i + k < n) p[i + k] = mean + stddev * normal[k];
  }
}

// Sets p[i] to a normal number with this mean and standard deviation, for i < n. p[i] is element
// first + i of the rank's part of the tensor with the number `tensor` (below 2^24), and element
// index(first + i) of the whole tensor (below 2^42). Its value depends only on that index,
// `tensor`, seed, mean and stddev: a part has the same bits as in a fill of the whole tensor.
// Throws unless the part is contiguous in the whole tensor or consists of whole groups of four.
inline void normal_fill(float* p, std::int64_t n, std::int64_t first, const GlobalIndex& index,
                        std::uint64_t seed, std::uint32_t tensor, float mean, float stddev,
                        Stream& stream) {
  if (index.row_size != 0) index.require_groups("normal_fill", first);
  const std::int64_t skip = index(first) % 4;
  launch_elementwise<1>(normal_fill_kernel, n == 0 ? 0 : ceil_div(skip + n, 4), stream, p, n, first,
                        skip, index, seed, tensor, mean, stddev);
}

// The same for elements first_index to first_index + n - 1 of the whole tensor.
inline void normal_fill(float* p, std::int64_t n, std::int64_t first_index, std::uint64_t seed,
                        std::uint32_t tensor, float mean, float stddev, Stream& stream) {
  normal_fill(p, n, first_index, GlobalIndex{}, seed, tensor, mean, stddev, stream);
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
