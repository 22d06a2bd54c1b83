#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/global_index.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

// One thread per group of four elements of the whole tensor: Philox generates four numbers at once.
// The range begins `skip` elements after the start of its first group.
__global__ void normal_fill_kernel(float* p, std::int64_t n, std::int64_t first, std::int64_t skip,
                                   GlobalIndex index, std::uint64_t seed, std::uint32_t tensor,
                                   float mean, float stddev) {
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

void normal_fill(float* p, std::int64_t n, std::int64_t first, const GlobalIndex& index,
                 std::uint64_t seed, std::uint32_t tensor, float mean, float stddev,
                 Stream& stream) {
  if (index.row_size != 0) index.require_groups("normal_fill", first);
  const std::int64_t skip = index(first) % 4;
  launch_elementwise<1>(normal_fill_kernel, n == 0 ? 0 : ceil_div(skip + n, 4), stream, p, n, first,
                        skip, index, seed, tensor, mean, stddev);
}

void normal_fill(float* p, std::int64_t n, std::int64_t first_index, std::uint64_t seed,
                 std::uint32_t tensor, float mean, float stddev, Stream& stream) {
  normal_fill(p, n, first_index, GlobalIndex{}, seed, tensor, mean, stddev, stream);
}

// The same with uniform numbers: the middles of 2^23 equal intervals, exact in fp32.
__global__ void uniform_fill_kernel(float* p, std::int64_t n, std::int64_t first, std::int64_t skip,
                                    GlobalIndex index, std::uint64_t seed, std::uint32_t tensor,
                                    float bound) {
  const std::int64_t i = global_thread() * 4 - skip;
  if (i >= n) return;
  const std::uint64_t group = static_cast<std::uint64_t>(index(first + i)) / 4;
  const PhiloxBits bits = random_bits(seed, RandomPurpose::initialisation, 0, tensor, group);
  for (int k = 0; k < 4; ++k) {
    const std::int32_t interval = static_cast<std::int32_t>(bits.words[k] >> 9) - (1 << 22);
    if (i + k >= 0 && i + k < n) {
      p[i + k] = bound * ((static_cast<float>(interval) + 0.5f) * 0x1p-22f);
    }
  }
}

void uniform_fill(float* p, std::int64_t n, std::int64_t first, const GlobalIndex& index,
                  std::uint64_t seed, std::uint32_t tensor, float bound, Stream& stream) {
  if (index.row_size != 0) index.require_groups("uniform_fill", first);
  const std::int64_t skip = index(first) % 4;
  launch_elementwise<1>(uniform_fill_kernel, n == 0 ? 0 : ceil_div(skip + n, 4), stream, p, n,
                        first, skip, index, seed, tensor, bound);
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

template <class T>
void constant_fill(T* p, std::int64_t n, float value, Stream& stream) {
  launch_elementwise<kPerThread<T>>(constant_fill_kernel<T>, n, stream, p, n, value);
}

LLMC_INSTANTIATE(constant_fill)

}  // namespace llmc
