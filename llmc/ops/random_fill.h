// Initial values of parameters.
#pragma once

#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/element_box.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Standard normal numbers for elements 4 * group to 4 * group + 3 of a tensor. Philox generates
// four numbers at once.
__device__ __forceinline__ void normals_of_group(std::uint64_t seed, std::uint32_t tensor,
                                                 std::int64_t group, float (&normal)[4]) {
  const PhiloxBits bits = random_bits(seed, RandomPurpose::initialisation, 0, tensor,
                                      static_cast<std::uint64_t>(group));
  normals_from_bits(bits.words[0], bits.words[1], normal[0], normal[1]);
  normals_from_bits(bits.words[2], bits.words[3], normal[2], normal[3]);
}

// One thread per group.
inline __global__ void normal_fill_kernel(float* p, std::int64_t n, std::int64_t first_index,
                                          std::uint64_t seed, std::uint32_t tensor, float mean,
                                          float stddev) {
  const std::int64_t group = first_index / 4 + global_thread();
  if (group * 4 >= first_index + n) return;
  float normal[4];
  normals_of_group(seed, tensor, group, normal);
  for (int k = 0; k < 4; ++k) {
    const std::int64_t i = group * 4 + k - first_index;
    if (i >= 0 && i < n) p[i] = mean + stddev * normal[k];
  }
}

// One thread per group of a row of the box.
inline __global__ void normal_fill_box_kernel(float* p, ElementBox box, std::int64_t groups_per_row,
                                              std::uint64_t seed, std::uint32_t tensor, float mean,
                                              float stddev) {
  const std::int64_t row = global_thread() / groups_per_row;
  if (row >= box.rows) return;
  const std::int64_t first = box.global_index(row, 0);
  const std::int64_t group = first / 4 + global_thread() % groups_per_row;
  if (group * 4 >= first + box.columns) return;
  float normal[4];
  normals_of_group(seed, tensor, group, normal);
  for (int k = 0; k < 4; ++k) {
    const std::int64_t column = group * 4 + k - first;
    if (column >= 0 && column < box.columns) {
      p[box.local_index(row, column)] = mean + stddev * normal[k];
    }
  }
}

// Sets p[i] to a normal number with this mean and standard deviation, for i < n. p[i] is element
// first_index + i of the tensor with the number `tensor` (below 2^24, elements below 2^42). Its
// value depends only on that index, `tensor`, seed, mean and stddev: a slice has the same values as
// in a fill of the whole tensor.
inline void normal_fill(float* p, std::int64_t n, std::int64_t first_index, std::uint64_t seed,
                        std::uint32_t tensor, float mean, float stddev, Stream& stream) {
  const std::int64_t groups = ceil_div(first_index + n, 4) - first_index / 4;
  launch_elementwise<1>(normal_fill_kernel, groups, stream, p, n, first_index, seed, tensor, mean,
                        stddev);
}

// The same for a box of the tensor. p is the rank's array, of which only the elements of the box
// are written. Each is bitwise the value that a fill of the whole tensor writes.
inline void normal_fill(float* p, const ElementBox& box, std::uint64_t seed, std::uint32_t tensor,
                        float mean, float stddev, Stream& stream) {
  if (box.is_contiguous()) {
    normal_fill(p + box.local_begin, box.size(), box.global_begin, seed, tensor, mean, stddev,
                stream);
    return;
  }
  // The maximum number of groups that a row touches: it may begin at the last element of a group.
  const std::int64_t groups_per_row = ceil_div(box.columns + 3, 4);
  launch_elementwise<1>(normal_fill_box_kernel, box.rows * groups_per_row, stream, p, box,
                        groups_per_row, seed, tensor, mean, stddev);
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
